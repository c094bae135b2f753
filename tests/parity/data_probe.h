#pragma once

#include <nlohmann/json_fwd.hpp>

#include "tests/parity/probe_request.h"

namespace trainrun {

/// The batch "input.NAME" changed, with a generator seeded `seed`; "learn": what a transform that learns sees before,
/// in two batches. What it learnt goes by way of its saved state.
nlohmann::json run_transform(Request& request);

/// All samples of a data set, which learns from the first `learn` of them; or from what "learnt" says.
nlohmann::json run_dataset(Request& request);

/// The part of each sample.
nlohmann::json run_partition(Request& request);

/// The order of an epoch's samples.
nlohmann::json run_sampler(Request& request);

}  // namespace trainrun
