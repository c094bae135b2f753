#pragma once

#include "registry/graph/flatten.h"
#include "registry/graph/plan.h"

namespace trainrun {

/// Steps `begin` to `end` of `plan` as one, under the name of `layer`, in which they lie: what they compute is not kept
/// for the backward pass, which computes it again.
PlanStep recomputed_step(const FlatGraph& flat, const Plan& plan, size_t begin, size_t end, const FlatLayer& layer);

}  // namespace trainrun
