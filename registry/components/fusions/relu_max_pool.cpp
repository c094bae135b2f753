#include "registry/kernels/relu_max_pool.h"

#include <nlohmann/json.hpp>

#include "registry/graph/fusion.h"
#include "registry/graph/graph.h"

// ReLU followed by MaxPool2d: one pass over the input instead of three, and a byte kept for each output instead of the
// ReLU's output and 64-bit indices.

namespace trainrun {
namespace {

/// `kernel_size: 3` or `[3, 5]`, as a pooling's attributes have it.
std::array<int64_t, 2> pair_of(const nlohmann::json& value) {
  if (value.is_array()) return {value.at(0).get<int64_t>(), value.at(1).get<int64_t>()};
  return {value.get<int64_t>(), value.get<int64_t>()};
}

class ReluMaxPool : public Operation {
 public:
  explicit ReluMaxPool(const kernels::MaxPoolWindow& window) : window_(window) {}
  Tensors run(const Tensors& inputs) const override { return {kernels::relu_max_pool2d(inputs[0], window_)}; }

 private:
  kernels::MaxPoolWindow window_;
};

std::shared_ptr<const Operation> fuse_relu_max_pool(const FusedLayers& layers) {
  const nlohmann::json& pool = layers["pool"].attributes;
  if (pool.at("return_indices").get<bool>()) return nullptr;
  kernels::MaxPoolWindow window{};
  window.kernel_size = pair_of(pool.at("kernel_size"));
  window.stride = pool.at("stride").is_null() ? window.kernel_size : pair_of(pool.at("stride"));
  window.padding = pair_of(pool.at("padding"));
  window.dilation = pair_of(pool.at("dilation"));
  window.ceil_mode = pool.at("ceil_mode").get<bool>();
  if (!kernels::can_fuse_relu_max_pool2d(window, layers["relu"].output_dtypes.at(0))) return nullptr;
  return std::make_shared<ReluMaxPool>(window);
}

}  // namespace

void add_relu_max_pool(FusionRegistry& fusions) {
  fusions.add({"ReLUMaxPool2d",
               "ReLU and the MaxPool2d after it in one pass, bit for bit",
               {.nodes = {{"relu", {"ReLU"}}, {"pool", {"MaxPool2d"}, {"relu"}}}},
               fuse_relu_max_pool});
}

}  // namespace trainrun
