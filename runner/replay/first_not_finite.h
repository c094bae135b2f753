#pragma once

#include <string>

#include "runner/replay/replayed_run.h"

namespace trainrun {

/// Makes the steps up to `last` again, from the newest state before it, until a weight is not finite, or a loss; returns
/// that step, the first of them. Throws Error where all is finite.
int64_t find_not_finite(ReplayedRun& run, int64_t last);

/// After the run in `folder` failed since the loss of step `failed` was not finite, and its weights before that step were
/// not, either: the first number that was not, or the command that finds it where too many steps would have to be made
/// again. Never throws what of this fails: that is told.
std::string explain_not_finite(const std::string& folder, const std::vector<std::string>& overrides, int64_t failed,
                               Catalog& catalog);

}  // namespace trainrun
