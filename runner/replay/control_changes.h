#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runner/train/progress.h"

namespace trainrun {

/// A change that `trainrun ctl` made in one of two runs, and not in the other.
struct ControlChange {
  std::string run;
  RunChange change;
};

/// Those that change numbers, by step, up to step `until`. The same value after the same step is the same change.
std::vector<ControlChange> changes_of_one(const std::string& a, const std::vector<RunChange>& of_a,
                                          const std::string& b, const std::vector<RunChange>& of_b, int64_t until);

/// The newest of them, of both runs, that were made before step `step`.
std::vector<ControlChange> newest_before(const std::vector<ControlChange>& changes, int64_t step);

/// "trainrun ctl changed optimizer.lr of runs/b from 0.01 to 1e-4 after step 40"; "" for none.
std::string control_text(const std::vector<ControlChange>& changes);

}  // namespace trainrun
