#pragma once

#include <optional>
#include <vector>

#include "runner/recipe/recipe.h"

namespace trainrun {

/// How long a job is, as far as it is known.
struct JobLength {
  std::optional<int64_t> total_steps;  // optimizer steps
  std::optional<int64_t> steps_per_epoch;
  std::optional<int64_t> num_epochs;  // the recipe's
};

/// What never happens, or happens too early, because the job is as long as it is: a warm-up or a milestone beyond its
/// end, a schedule that ends before it, an average or an unfreezing that never begins. Nothing where the length that
/// matters is not known. Each with its place.
std::vector<Problem> schedule_notes(const Recipe& recipe, const JobLength& job);

}  // namespace trainrun
