#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

struct gzFile_s;  // NOLINT(readability-identifier-naming): zlib's

namespace trainrun {

/// Reads a file from its start to its end, decompressing it if it is gzip. Every failure is a DataError that names the
/// file, and so is a bomb (unpacking.h).
class DataFile {
 public:
  explicit DataFile(std::string path);
  const std::string& path() const { return path_; }
  /// Reads up to `size` bytes and returns how many: fewer only at the end of the file.
  size_t read(void* data, size_t size);
  /// Reads exactly `size` bytes of `what` ("the header"); throws where the file ends before.
  void read_exactly(void* data, size_t size, const std::string& what);

 private:
  struct Close {
    void operator()(gzFile_s* file) const;
  };
  std::string path_;
  std::unique_ptr<gzFile_s, Close> file_;
  uint64_t given_ = 0;  // bytes
};

/// Whether the file's name ends so, in capital letters or not, perhaps before ".gz". `extension`: ".csv".
bool has_extension(const std::string& path, std::string_view extension);

/// What a file turns out to be that was read as something else, by its first bytes: "; it is a Parquet file: write type:
/// Parquet"; "" where nothing is known of it.
std::string other_kind_hint(const std::string& path);

/// MD5 of the file's bytes as they lie on the disk, and of its content (the same unless it is gzip): 32 lower-case
/// hexadecimal digits. For telling a damaged or wrong file from the published one; no protection against malice.
std::string md5_of_file(const std::string& path);
std::string md5_of_content(const std::string& path);

}  // namespace trainrun
