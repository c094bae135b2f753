#include "runner/model/flops.h"

#include <ATen/ops/empty.h>
#include <c10/core/GradMode.h>

#include "registry/graph/shape_mode.h"

namespace trainrun {

std::vector<int64_t> example_sizes(const FieldInfo& field) {
  std::vector<int64_t> sizes = {kExampleBatch};
  sizes.insert(sizes.end(), field.shape.begin(), field.shape.end());
  return sizes;
}

int64_t forward_flops(Model& model, const DatasetInfo& info) {
  const ShapeMode shapes;
  const c10::AutoGradMode no_gradients(false);
  Tensors inputs;
  for (const FieldInfo& field : info.fields) inputs.push_back(at::empty(example_sizes(field), field.dtype));
  const int64_t before = ShapeMode::flops();
  model.graph().forward(inputs);
  return (ShapeMode::flops() - before) / kExampleBatch;
}

}  // namespace trainrun
