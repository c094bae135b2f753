#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "registry/formats/files/file_io.h"

namespace trainrun {

/// Reads a zip archive: members stored or deflated, with 64-bit sizes where need be. What is read is checked against
/// the archive's CRC-32. Everything wrong is a DataError; its message does not name the file.
class ZipFile {
 public:
  struct Member {
    std::string name;
    bool deflated = false;
    uint32_t crc = 0;
    uint64_t stored_bytes = 0;
    uint64_t bytes = 0;
    uint64_t header_offset = 0;
  };

  explicit ZipFile(const std::string& path);
  /// As the archive lists them; no two of one name.
  const std::vector<Member>& members() const { return members_; }
  /// The member called `name`, or nullptr.
  const Member* find(const std::string& name) const;
  /// The whole member: [bytes] uint8.
  at::Tensor read(const Member& member);
  /// The member's first bytes, `most` of them at most; not checked, since the CRC is that of the whole.
  std::string read_start(const Member& member, uint64_t most);

 private:
  void read_directory();
  /// The next byte read is the first of the member's data.
  void go_to(const Member& member);
  void inflate(const Member& member, uint8_t* to, uint64_t bytes);

  FileReader file_;
  std::vector<Member> members_;
  bool has_checksums_ = true;  // torch.save can be told to write none: all are 0
};

/// Whether a file that begins with these bytes is a zip archive.
inline bool begins_as_zip(std::string_view bytes) { return bytes.starts_with("PK\x03\x04"); }

}  // namespace trainrun
