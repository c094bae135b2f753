#pragma once

#include "registry/kinds/optimizer.h"

namespace trainrun {

/// Bytes of an optimizer's state after a step over parameters that need not have memory.
int64_t optimizer_state_bytes(const Component<OptimizerKind>& optimizer, const OptimizerInputs& inputs);

}  // namespace trainrun
