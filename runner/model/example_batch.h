#pragma once

#include <cstdint>
#include <vector>

#include "registry/kinds/batch.h"
#include "registry/kinds/layer.h"

namespace trainrun {

/// The sizes of an example of the field: [kExampleBatch, …].
std::vector<int64_t> example_sizes(const FieldInfo& field);

/// An example batch of these fields, in their order, by which a model is tried: shapes and dtypes, but no numbers.
LayerInputs example_batch(const DatasetInfo& info);

}  // namespace trainrun
