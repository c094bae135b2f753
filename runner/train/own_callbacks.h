#pragma once

#include <memory>
#include <optional>

#include "registry/kinds/scheduler.h"
#include "runner/recipe/recipe.h"
#include "runner/train/callbacks.h"

namespace trainrun {

/// What follows from the recipe's other sections at the points where callbacks are called: a scheduler that watches a
/// figure (null: there is no scheduler; a resume puts another in its place), and which evaluation is the `best`. All of
/// these outlive the callbacks.
void add_own_callbacks(const Recipe& recipe, const std::unique_ptr<Scheduler>& scheduler, std::optional<double>& best,
                       Callbacks& callbacks);

}  // namespace trainrun
