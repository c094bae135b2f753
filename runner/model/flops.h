#pragma once

#include <cstdint>
#include <vector>

#include "runner/model/model.h"

namespace trainrun {

/// The sizes of an example of the field, with a dimension for the samples in front.
std::vector<int64_t> example_sizes(const FieldInfo& field);

/// Of one sample's forward pass: multiplications and additions of matrix products and convolutions. `model` has no
/// memory.
int64_t forward_flops(Model& model, const DatasetInfo& info);

}  // namespace trainrun
