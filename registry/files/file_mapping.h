#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace trainrun {

/// A file mapped into memory to be read, so that only the pages that are read take memory, which processes share.
class FileMapping {
 public:
  /// Throws DataError, which names the file.
  explicit FileMapping(const std::string& path);
  FileMapping(const FileMapping&) = delete;
  FileMapping& operator=(const FileMapping&) = delete;
  ~FileMapping();
  std::string_view bytes() const { return {begin_, size_}; }

 private:
  const char* begin_ = nullptr;
  size_t size_ = 0;
};

}  // namespace trainrun
