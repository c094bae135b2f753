#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace trainrun {

/// What may be done with a file in memory. What is written changes pages of this process alone, never the file; the
/// system counts the whole of it as memory that may be wanted, so that it is not for files larger than the machine's.
enum class MappedFor { kReading, kWriting };

/// A file mapped into memory, so that only the pages that are read take memory, which processes share.
class FileMapping {
 public:
  /// Throws DataError, which names the file.
  explicit FileMapping(const std::string& path, MappedFor use = MappedFor::kReading);
  FileMapping(const FileMapping&) = delete;
  FileMapping& operator=(const FileMapping&) = delete;
  ~FileMapping();
  std::string_view bytes() const { return {begin_, size_}; }
  /// To write there, where it was mapped for writing.
  char* begin() const { return begin_; }

 private:
  char* begin_ = nullptr;
  size_t size_ = 0;
};

}  // namespace trainrun
