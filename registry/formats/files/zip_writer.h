#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "registry/formats/files/file_io.h"

namespace trainrun {

/// Appends the bytes of an integer, the lowest first.
template <class T>
void append_little(std::string& bytes, T number) {
  for (size_t i = 0; i < sizeof(T); ++i) bytes += static_cast<char>(number >> (8 * i));
}

/// Writes a zip archive of stored members, whose sizes are all given with 64 bits, one after another.
class ZipWriter {
 public:
  /// `file` outlives this; `position`: how many bytes precede the archive in it.
  explicit ZipWriter(FileWriter& file, uint64_t position = 0) : file_(file), position_(position) {}
  /// A member of these parts, one after the other.
  void add(const std::string& name, const std::vector<std::string_view>& parts);
  /// The list of members; the file itself is not finished.
  void finish();

 private:
  void begin(const std::string& name, uint64_t bytes, uint32_t crc);
  void write(std::string_view bytes);

  FileWriter& file_;
  std::string directory_;
  uint64_t position_;
  uint64_t count_ = 0;
};

}  // namespace trainrun
