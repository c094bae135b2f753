#pragma once

#include "runner/model/model.h"

namespace trainrun {

/// Of one sample's forward pass: multiplications and additions of matrix products and convolutions. `model` has no
/// memory.
int64_t forward_flops(Model& model, const DatasetInfo& info);

}  // namespace trainrun
