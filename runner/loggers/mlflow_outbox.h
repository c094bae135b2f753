#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "registry/kinds/figures.h"
#include "runner/loggers/appended_file.h"

namespace trainrun {

/// Figures of one step or evaluation that are on their way to a server.
struct MlflowLine {
  bool is_evaluation = false;
  int64_t step = 0;
  int64_t time = 0;  // milliseconds since 1970
  Figures figures;
};

/// What has yet to be sent, in two files of a folder, so that it survives the process and an absent server: the training
/// thread adds lines to `unsent.jsonl`; the thread that sends renames that to `sending.jsonl`, and removes it when
/// all of it has been received. Thread-safe.
class MlflowOutbox {
 public:
  /// Makes the folder. Throws FileError, as the members do.
  explicit MlflowOutbox(std::string folder);

  /// Drops what a run that begins at `step` makes again, and half lines of a killed process. What that was sending stays:
  /// sent again with the same times it is what the server has, where it has it.
  void keep_until(int64_t step, bool evaluation_due);
  /// Whether `take` gives what an earlier process was sending when it ended: the server may have received all of it.
  bool was_interrupted() const;
  void add(const MlflowLine& line);
  /// The lines to send next: those taken before, unless they were sent.
  std::vector<MlflowLine> take();
  /// What was taken is sent.
  void sent();
  /// Lines that are not sent.
  int64_t size() const;
  /// The first and the last step of those.
  std::optional<std::pair<int64_t, int64_t>> steps() const;
  std::string unsent_path() const { return folder_ + "/unsent.jsonl"; }
  std::string sending_path() const { return folder_ + "/sending.jsonl"; }

 private:
  std::string folder_;
  mutable std::mutex mutex_;
  std::optional<AppendedFile> file_;  // null: it is opened by the next line
  int64_t unsent_ = 0;                // lines in it
  bool was_interrupted_ = false;
  int64_t sending_ = 0;  // and in the other
};

}  // namespace trainrun
