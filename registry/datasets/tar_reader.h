#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "registry/datasets/data_file.h"

namespace trainrun {

/// Reads the files in a tar archive (POSIX ustar and pax, GNU), plain or gzip, one after another. Nothing is unpacked:
/// names are only names, so that an archive cannot write anywhere. Folders, links and devices are passed over.
/// Throws DataError, which names the archive and the file in it, where it is damaged or cut off.
class TarReader {
 public:
  explicit TarReader(const std::string& path) : file_(path) {}

  struct Member {
    std::string name;
    uint64_t size = 0;
  };
  /// The next file; nothing after the last.
  std::optional<Member> next();
  /// The content of that file, whole. Throws where it has more than `most` bytes.
  std::string read(uint64_t most);

 private:
  struct Header;
  std::optional<Header> next_header();
  void skip(uint64_t size);
  /// A name, or what else is said of the next member, in front of it.
  std::string read_extension(const Header& header);
  [[noreturn]] void fail(const std::string& what) const;

  DataFile file_;
  Member member_;
  uint64_t unread_ = 0;  // of the member, with what fills its last block
};

}  // namespace trainrun
