#pragma once

#include "runner/train/job.h"

namespace trainrun {

/// What follows from the recipe's other sections at the points where callbacks are called: a scheduler that watches a
/// figure, and which evaluation is the best.
void add_own_callbacks(Job& job);

}  // namespace trainrun
