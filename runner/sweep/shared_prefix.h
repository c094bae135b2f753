#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "runner/model/recipe_loader.h"

namespace trainrun {

/// Where a trial begins: with what another one had after `step`.
struct Fork {
  size_t parent = 0;  // among the trials, before it
  int64_t step = 0;
};

struct ForkPlan {
  std::vector<std::optional<Fork>> forks;  // of each trial; nothing: it is trained from the beginning
  std::vector<std::string> notes;          // why trials that might share steps do not
};

/// Which trials are equal up to a step: their recipes differ in nothing but the scheduler and the length, and the rates
/// that their schedulers set are equal, bit for bit, for each of those steps. Steps that several trials have in common are
/// then trained once. `resolved`: the trials' recipes; `load` reads one of them in full, where another one may share steps
/// with it. `most`: a trial begins with no more steps than these. Opens the training data to count the steps of an epoch.
/// Throws RecipeError, DataError.
ForkPlan plan_forks(const std::vector<Value>& resolved, const std::function<LoadedRecipe(size_t)>& load, int64_t most);

}  // namespace trainrun
