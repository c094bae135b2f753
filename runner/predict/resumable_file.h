#pragma once

#include <nlohmann/json.hpp>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "runner/loggers/appended_file.h"

namespace trainrun {

/// How far predictions have come.
struct PredictionPoint {
  int64_t num_read = 0;      // samples, those left out among them
  int64_t num_written = 0;   // rows
  int64_t num_left_out = 0;  // samples that could not be read
};

/// A file that grows beside the name that it gets in the end, as NAME.partial, with a journal of how far it has come,
/// NAME.partial.json. What was killed goes on there: what came after the last mark is cut off, a torn line too.
class ResumableFile {
 public:
  /// `identity`: of what is written. A file of another is begun anew. Throws FileError, as every member does.
  ResumableFile(std::string path, nlohmann::json identity);
  /// What was never marked cannot go on, and is removed.
  ~ResumableFile();
  ResumableFile(const ResumableFile&) = delete;
  ResumableFile& operator=(const ResumableFile&) = delete;
  /// Where it goes on.
  const PredictionPoint& begin() const { return begin_; }
  /// What a user should know of what was found there; "".
  const std::string& note() const { return note_; }
  void write(std::string_view text);
  /// Returns when all that was written is on the disk, and noted to be as far as `point`.
  void mark(const PredictionPoint& point);
  /// The file gets its name.
  void finish();

 private:
  std::string partial() const { return path_ + ".partial"; }
  std::string journal() const { return path_ + ".partial.json"; }
  bool take_up();

  std::string path_;
  nlohmann::json identity_;
  PredictionPoint begin_;
  std::string note_;
  uint64_t num_bytes_ = 0;
  std::unique_ptr<AppendedFile> file_;
};

}  // namespace trainrun
