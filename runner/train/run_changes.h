#pragma once

#include <string>
#include <vector>

#include "runner/train/live_profile.h"
#include "runner/train/run_change.h"

namespace trainrun {

class Job;

/// Makes a change effective, on every rank; nothing where the recipe says another value by now than it did then. Returns
/// what is to be said about it.
std::string apply_change(Job& job, const RunChange& change);

/// Makes the changes that somebody asks for by the run's socket, between two steps: on all ranks, in recipe_history.jsonl,
/// in the log, and in what checkpoints keep. A resumed run makes each of them again, after the same step.
class RunChanges {
 public:
  explicit RunChanges(Job& job) : job_(job) {}
  /// After a step. `is_asked`: rank 0 has commands; all ranks know that. Whoever asked is answered when the change is made
  /// and in the history.
  void heed(bool is_asked);

 private:
  struct Asked;
  Asked asked_changes();
  void make(const RunChange& change);
  std::string write_history() const;  // returns "", or what is to be said after an answer

  Job& job_;
  LiveProfile profile_;
};

}  // namespace trainrun
