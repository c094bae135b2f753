#pragma once

#include <memory>

#include "registry/graph/plan.h"

namespace trainrun {

/// Puts an engine that `recomputed` can ask in the place of LibTorch's, for the whole process: before the first backward
/// pass. Without it `recomputed` throws Error.
void install_recomputation();

/// An operation that runs `inside` and keeps only its inputs for the backward pass, which runs it again when it first
/// needs what was not kept. Both runs give the same, bit for bit: they begin with the same random numbers, the same
/// autocast and the same `buffers` (those of the layers inside), which move once. `changes_inputs`: `inside` may write
/// into its inputs, so that copies of them are kept. Steps that communicate do so again, in the same order on each rank.
/// Source: Chen et al. 2016, "Training deep nets with sublinear memory cost"; semantics of torch.utils.checkpoint with
/// use_reentrant=False, but for the buffers, which move twice there.
std::shared_ptr<const Operation> recomputed(std::shared_ptr<const Plan> inside, Tensors buffers, bool changes_inputs);

}  // namespace trainrun
