#include "runner/model/example_batch.h"

#include <ATen/ops/empty.h>

#include "registry/graph/shape_mode.h"
#include "registry/kinds/layer_shapes.h"

namespace trainrun {

std::vector<int64_t> example_sizes(const FieldInfo& field) {
  std::vector<int64_t> sizes = {kExampleBatch};
  sizes.insert(sizes.end(), field.shape.begin(), field.shape.end());
  return sizes;
}

LayerInputs example_batch(const DatasetInfo& info) {
  const ShapeMode shapes;
  LayerInputs inputs;
  for (const FieldInfo& field : info.fields) {
    inputs.names.push_back(field.name);
    inputs.examples.push_back(at::empty(example_sizes(field), field.dtype));
  }
  return inputs;
}

}  // namespace trainrun
