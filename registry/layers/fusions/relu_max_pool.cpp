#include "registry/layers/fusions/relu_max_pool.h"

#include "registry/graph/graph.h"
#include "registry/kernels/max_pool.h"
#include "registry/layers/poolings.h"

// ReLU followed by MaxPool2d: one pass over the input instead of three, and a byte kept for each output instead of the
// ReLU's output and 64-bit indices.

namespace trainrun {
namespace {

class ReluMaxPool : public Operation {
 public:
  explicit ReluMaxPool(const kernels::MaxPoolWindow& window) : window_(window) {}
  Tensors run(const Tensors& inputs) const override { return {kernels::relu_max_pool2d(inputs[0], window_)}; }

 private:
  kernels::MaxPoolWindow window_;
};

std::shared_ptr<const Operation> fuse_relu_max_pool(const FusedLayers& layers) {
  const auto window = window_after_relu(layers);
  return window ? std::make_shared<ReluMaxPool>(*window) : nullptr;
}

}  // namespace

std::optional<kernels::MaxPoolWindow> window_after_relu(const FusedLayers& layers) {
  const auto* pool = layers["pool"].options<MaxPool<2>>();
  if (!pool || pool->return_indices) return std::nullopt;
  const kernels::MaxPoolWindow window = window_of(*pool);
  const bool can = kernels::can_fuse_relu_max_pool2d(window, layers["relu"].output_dtypes.at(0));
  return can ? std::optional(window) : std::nullopt;
}

void add_relu_max_pool(FusionRegistry& fusions) {
  fusions.add({"ReLUMaxPool2d",
               "ReLU and the MaxPool2d after it in one pass, bit for bit",
               {.nodes = {{"relu", {"ReLU"}}, {"pool", {"MaxPool2d"}, {"relu"}}}},
               fuse_relu_max_pool});
}

}  // namespace trainrun
