#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "registry/catalog.h"
#include "runner/sweep/sampler.h"
#include "runner/sweep/search_space.h"
#include "runner/sweep/shared_prefix.h"
#include "runner/sweep/sweep_state.h"
#include "runner/sweep/trial_folder.h"
#include "runner/sweep/trial_process.h"

namespace trainrun {

struct SweepOptions {
  std::string program;  // as it was called
  std::string recipe;
  SearchSpace space;
  SweepFacts facts;
  std::string folder;
  int64_t jobs = 1;  // trials at once
  bool shares_steps = true;
  bool retries_failed = false;
  std::function<void(const std::string&)> tell;  // takes a line for the user
};

/// Checks the recipe with values of the space: all points where there are few, else its corners. Returns it with the first
/// ones. Throws RecipeError.
LoadedRecipe check_recipe(const std::string& recipe, const SearchSpace& space, const Catalog& catalog);

/// Trains the trials of a sweep, each as a process of its own.
class Sweep {
 public:
  /// Takes the folder, and goes on with the sweep that was begun in it. Throws Error, DataError, FileError.
  Sweep(SweepOptions options, const Catalog& catalog);

  /// Trains until nothing is left to do, or a signal asks to stop, which trials are told. Returns the signal, or 0.
  int run();
  const SweepState& state() const { return state_; }
  std::string folder_of(int64_t trial) const;

 private:
  struct Running {
    int64_t trial = 0;
    int64_t slot = 0;  // among those that run at once: which cores it has
    std::unique_ptr<TrialProcess> process;
  };
  /// Where a point of the search begins, once the trial of another one has come so far.
  struct PlannedFork {
    int64_t parent = 0;  // number of its point
    int64_t step = 0;
  };

  Point point_of(int64_t number) const;
  std::vector<Observation> observations_before(int64_t number) const;
  bool may_choose(int64_t number) const;
  /// Of a point that was chosen; `folder`: where its run is to lie, "": not said.
  LoadedRecipe load(int64_t number, const std::string& folder) const;
  Value resolve(int64_t number) const;
  void plan_sharing();
  const SweepTrial& choose(int64_t number);
  int64_t unused_id(const Value& resolved) const;

  void record(const nlohmann::json& entry);
  bool take_finished(int64_t id, const TrialProgress& progress);
  void take_stopped(int64_t id, const TrialProgress& progress);
  void settle_ended(const Running& ended, int exit_code);
  void note_reached(const SweepTrial& trial, const TrialProgress& progress);
  void fork_from(const SweepTrial& parent);
  bool is_begin_of_others(const SweepTrial& trial, int64_t step) const;
  std::optional<int64_t> step_to_stop(const SweepTrial& trial) const;
  bool waits_for_parent(const SweepTrial& trial) const;
  std::optional<int64_t> number_of(int64_t trial) const;
  bool is_running(int64_t trial) const;
  std::optional<int64_t> next_trial();
  void start(int64_t id);
  bool start_what_can_be();
  void heed_signals();
  void tell_of(const SweepTrial& trial, const std::string& what) const;
  std::string output_of(int64_t trial) const;
  TrialProgress progress_of(int64_t trial) const;

  SweepOptions options_;
  const Catalog& catalog_;
  std::unique_ptr<Journal> journal_;
  SweepState state_;
  std::map<int64_t, PlannedFork> forks_;  // by the number of the point
  std::map<int64_t, Point> points_;       // of numbers that were chosen
  std::vector<Running> running_;
  int signal_ = 0;
};

}  // namespace trainrun
