#include "runner/model/flops.h"

#include <c10/core/GradMode.h>

#include "registry/graph/shape_mode.h"
#include "runner/model/example_batch.h"

namespace trainrun {

int64_t forward_flops(Model& model, const DatasetInfo& info) {
  const ShapeMode shapes;
  const c10::AutoGradMode no_gradients(false);
  const Tensors inputs = example_batch(info).examples;
  const int64_t before = ShapeMode::flops();
  model.graph().forward(inputs);
  return (ShapeMode::flops() - before) / kExampleBatch;
}

}  // namespace trainrun
