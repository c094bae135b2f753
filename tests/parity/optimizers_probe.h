#pragma once

#include <nlohmann/json_fwd.hpp>

#include "tests/parity/probe_request.h"

namespace trainrun {

/// Steps on "parameter.NAME" with the gradients "STEP.NAME", or those of the distance to "goal.NAME"; before the steps
/// in `reload_before` the optimizer is made anew from what the old one saves. `rates`: of every step and group, or
/// those of the recipe.
nlohmann::json run_optimizer(Request& request);

/// Seconds of each of `steps` steps on `tensors` parameters of `numel` elements, after some that warm up.
nlohmann::json time_optimizer(Request& request);

/// Rates of every group before each of `steps` steps. After step t `metrics[t]` is observed, unless it is null ("nan"
/// and "inf" are numbers too); before the steps in `reload_before` the scheduler is made anew from what the old one
/// saves.
nlohmann::json run_scheduler(Request& request);

}  // namespace trainrun
