#pragma once

#include <nlohmann/json.hpp>

#include <cstdint>
#include <string>
#include <vector>

#include "registry/formats/files/descriptor.h"

namespace trainrun {

/// What happened in a sweep, a JSON object in each line. A line is on the disk before anything is done that follows from
/// it, so that a sweep that is killed at any moment goes on from what it says.
class Journal {
 public:
  /// Opens the file, or makes it, for one process alone. Half a line at its end, that was being written when the process
  /// was killed, is cut off. Throws Error where another process has it for longer than one that was killed may,
  /// FileError, DataError naming the line where another one cannot be read.
  explicit Journal(std::string path);
  /// Reads one; changes nothing. No file: no entry.
  static std::vector<nlohmann::json> read(const std::string& path);

  const std::vector<nlohmann::json>& entries() const { return entries_; }
  void append(nlohmann::json entry);

 private:
  std::string path_;
  std::vector<nlohmann::json> entries_;
  Descriptor file_;
};

}  // namespace trainrun
