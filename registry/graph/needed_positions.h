#pragma once

#include "registry/graph/flatten.h"
#include "registry/graph/plan.h"

namespace trainrun {

/// A pass of a plan: position-wise steps compute only those positions of [N, T, …] that something reads. Padding is read by
/// nobody where attention or pooling has a mask, and of a text or picture that is classified by its first position, the
/// last block computes only that. What is given to the model's readers stays what it was, random draws included; sums
/// over positions come in another order.
void leave_out_positions(const FlatGraph& flat, Plan& plan);

}  // namespace trainrun
