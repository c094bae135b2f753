#pragma once

#include <nlohmann/json.hpp>

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "runner/foresight/explain.h"
#include "runner/foresight/rehearsal_process.h"

namespace trainrun {

/// What a job may take: `explain --fits`, `--within`.
struct DemandLimits {
  std::optional<int64_t> bytes = std::nullopt;
  std::optional<double> seconds = std::nullopt;
  bool wants_time = true;  // false: Demand has none, and is found seconds sooner
};

/// Whether what a job takes is within a limit.
struct LimitVerdict {
  bool holds = false;
  std::string most;                 // what takes the most of it
  std::vector<std::string> advice;  // overrides with which it holds; empty where none was found
  int64_t batch_size = 0;           // of the batches that fit then
  std::string remark;               // what the advice changes, or why there is none
};

/// Batches of a size that cannot be trained, which advice passes over.
struct SkippedSize {
  int64_t batch_size = 0;
  std::string why;  // what the rehearsal said
};

/// The memory and the time that a job takes, found by rehearsing it.
struct Demand {
  Rehearsal rehearsal;               // at `rehearsal.batch_size`
  std::vector<int64_t> sizes;        // of the batches that were rehearsed
  std::vector<SkippedSize> skipped;  // of those that BatchNorm and the like refuse, since they have too few samples
  bool is_extrapolated = false;      // from those, since the recipe's own batch does not fit into this machine's memory
  int64_t processes = 1;             // of the job on one machine
  int64_t peak_bytes = 0;            // of all of them together
  std::optional<double> seconds;     // nothing where no time was wanted, or nobody knows how many steps there are
  double step_part = 0;              // of the seconds, those of steps,
  double evaluation_part = 0;        // of evaluations,
  double checkpoint_part = 0;        // of waiting for checkpoints
  std::optional<LimitVerdict> fits;
  std::optional<LimitVerdict> within;
};

/// Rehearses the job with these overrides besides.
using Rehearse = std::function<RehearsalResult(const std::vector<std::string>& overrides, RehearsalAim aim)>;

/// Throws Error where the job cannot be rehearsed: with what the rehearsal said, or since not even one sample fits into
/// the memory that is free.
Demand foresee(const LoadedRecipe& loaded, const Explanation& explanation, const DemandLimits& limits,
               const Rehearse& rehearse);

/// The largest divisor of `batch_size` that is at most `most`; 1 where there is no other.
int64_t largest_divisor(int64_t batch_size, int64_t most);

/// The overrides with which as many samples make a step as before, of which `size`, a divisor of the batch size, are
/// computed at a time.
std::vector<std::string> smaller_batches(const Recipe& recipe, int64_t size);

/// For people, below the explanation.
std::string to_text(const Demand& demand, const Explanation& explanation, const DemandLimits& limits);
nlohmann::ordered_json to_json(const Demand& demand);

}  // namespace trainrun
