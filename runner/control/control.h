#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "registry/kinds/logger.h"
#include "runner/control/control_socket.h"
#include "runner/control/run_status.h"

namespace trainrun {

/// What somebody asks of a run by its socket.
struct ControlCommand {
  enum class Kind { kStatus, kMetrics, kSave, kStop, kProfile, kSet };
  Kind kind = Kind::kStatus;
  uint64_t client = 0;
  std::vector<std::pair<std::string, std::string>> settings;  // of kSet: key and value, as they were written
  int64_t steps = 0;                                          // of kProfile
};

/// Reads "set optimizer.lr=1e-4 logging.every_steps=10". Throws Error that says what was expected.
ControlCommand parse_command(const std::string& line);

/// The socket of a run, on rank 0. It hears what loggers hear, and answers `status` and `metrics` from that on its own
/// thread. `save` and `stop` become what SIGUSR1 and SIGTERM are; their answers wait until that is done. The other commands
/// wait until the training thread takes them, between two steps.
class Control : public Logger {
 public:
  /// Throws FileError where the folder can have no socket.
  explicit Control(const std::string& folder);
  ~Control() override;

  bool is_told_at_once() const override { return true; }
  void on_start(const RunInfo& info) override;
  void on_progress(int64_t step, double loss) override;
  void on_step(const StepRecord& record) override;
  void on_evaluation(const EvaluationRecord& record) override;
  void on_checkpoint(const CheckpointRecord& record) override;
  /// Answers everybody who still waits.
  void on_end(const EndRecord& record) override;

  /// Whether `take` would return something.
  bool has_commands() const { return has_commands_; }
  std::vector<ControlCommand> take();
  void answer(const ControlCommand& command, bool is_done, const std::string& text);
  /// Answers those who asked to save.
  void answer_saves(bool is_done, const std::string& text);
  /// What `set` has changed so far, for `status`.
  void set_changes(nlohmann::json changes);

 private:
  std::optional<std::string> handle(uint64_t client, const std::string& line);
  RunStatus status() const;
  void answer_all(std::vector<uint64_t>& clients, bool is_done, const std::string& text);

  mutable std::mutex mutex_;
  RunStatus status_;
  std::chrono::steady_clock::time_point begin_;
  std::vector<ControlCommand> commands_;
  std::vector<uint64_t> saving_;    // who waits for a checkpoint
  std::vector<uint64_t> stopping_;  // and for the end
  std::atomic<bool> has_commands_ = false;
  std::unique_ptr<ControlSocket> socket_;  // last: its thread uses the others
};

}  // namespace trainrun
