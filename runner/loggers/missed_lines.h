#pragma once

#include <cstdint>
#include <string>

namespace trainrun {

/// Counts the lines that a logger could not write, on a disk that was full for a while say. Each member returns what is to
/// be said about it now, or "".
class MissedLines {
 public:
  /// `is_line`: whether what could not be written was a line.
  std::string failed(const std::string& why, bool is_line);
  /// A line was written.
  std::string succeeded();
  /// Nothing more will be written.
  std::string ended();

 private:
  std::string count() const;

  bool is_failing_ = false;
  int64_t missed_ = 0;
};

}  // namespace trainrun
