#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "registry/catalog.h"
#include "runner/model/recipe_loader.h"
#include "runner/replay/tensor_figures.h"
#include "runner/run/run_record.h"
#include "runner/train/job.h"

namespace trainrun {

/// A state of a run that is on the disk.
struct StoredState {
  std::string path;  // of the checkpoint; "": the beginning, as the recipe and its seed make it
  int64_t step = 0;
  nlohmann::json state = {};  // its state.json
  bool is_own = true;         // false: a checkpoint of another run, with which this one began
};

/// How a state that was made again differs from what is stored.
struct StateDifference {
  std::string name;         // "3.weight", "the optimizer's 3.weight.exp_avg", or what else is not there in both
  TensorDifference tensor;  // of the first that differs, weights before the optimizer's state
  int64_t weights = 0;      // how many of the weights and buffers differ
  int64_t of_weights = 0;   // of how many
  int64_t optimizer = 0;    // how many of the optimizer's tensors differ
  /// "1 of 8 weights and buffers differ, and nothing of the optimizer's state"
  std::string counts_text() const;
};

/// Compares two states by the tensors in their files; nothing where they are equal.
std::optional<StateDifference> compare_states(const CheckpointContent& a, const CheckpointContent& b);

/// A run whose steps are made again from what lies in its folder, where nothing is written.
class ReplayedRun {
 public:
  /// Reads the folder. `overrides` are of what changes no number, such as `device=cpu`. Throws Error where steps of such
  /// a run cannot be made again by one process.
  ReplayedRun(const std::string& folder, const std::vector<std::string>& overrides, Catalog& catalog);
  ReplayedRun(const ReplayedRun&) = delete;
  ReplayedRun& operator=(const ReplayedRun&) = delete;

  const std::string& path() const { return path_; }
  const LoadedRecipe& loaded() const { return loaded_; }
  /// What the run has done, as far as its folder says: finished steps.
  int64_t last_step() const { return last_step_; }
  /// What of it is on the disk, oldest first: the beginning, then whole checkpoints.
  const std::vector<StoredState>& states() const { return states_; }
  /// The newest of them from which step `step` can be made.
  const StoredState& state_before(int64_t step) const;
  /// The figures of training that were logged, by step.
  const std::map<int64_t, Figures>& lines() const { return lines_; }
  std::optional<double> logged_loss(int64_t step) const;
  /// What `trainrun ctl` changed while the run went on, in the order of steps: steps are made again with it.
  const std::vector<RunChange>& changes() const { return changes_; }
  /// What could not be read, or is not as it was when the run was made: another machine, another number of threads.
  const std::vector<std::string>& notes() const { return notes_; }

  /// A job that stands where `from` was saved, and keeps nothing. One at a time. Throws what building and resuming throw.
  std::unique_ptr<Job> stand_at(const StoredState& from);

 private:
  void read_states();
  void read_changes();
  void repeat_changes(Job& job, const StoredState& from) const;
  void note_machine(const StoredState& from);
  void add_note(const std::string& note);

  std::string path_;
  LoadedRecipe loaded_;
  int64_t last_step_ = 0;
  std::vector<StoredState> states_;
  std::map<int64_t, Figures> lines_;
  std::vector<RunChange> changes_;
  std::vector<std::string> notes_;
};

/// Makes the job's steps until `after` says that this was the last one.
void make_steps(Job& job, const std::function<bool(const StepOutcome&)>& after);

}  // namespace trainrun
