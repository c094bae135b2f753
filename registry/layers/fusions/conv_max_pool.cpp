#include "registry/graph/fusion.h"
#include "registry/kernels/conv_pool.h"
#include "registry/layers/convolutions.h"
#include "registry/layers/fusions/unit_convolution.h"
#include "registry/layers/poolings.h"

// A first convolution, of few channels, with the ReLU and the MaxPool2d of 2x2 after it: its output, which is large, is
// never in memory.

namespace trainrun {
namespace {

bool is_halving(const MaxPool<2>& pool) {
  for (const size_t dim : {0, 1}) {
    if (pool.kernel_size[dim] != 2 || pool.step()[dim] != 2 || pool.padding[dim] != 0 || pool.dilation[dim] != 1) {
      return false;
    }
  }
  return !pool.ceil_mode && !pool.return_indices;
}

std::shared_ptr<const Operation> fuse(const FusedLayers& layers, bool has_relu) {
  const GraphNode& node = layers["convolution"];
  const auto padding = unit_convolution_padding(node);
  const auto* pool = layers["pool"].options<MaxPool<2>>();
  if (!padding || (*padding)[0] != (*padding)[1] || !pool || !is_halving(*pool)) return nullptr;
  if (node.output_dtypes.at(0) != at::kFloat) return nullptr;
  const kernels::ConvPoolTerms terms{(*padding)[0], has_relu};
  const auto parameters = node.layer.state->named_parameters(false);
  const at::Tensor* weight = parameters.find("weight");
  if (!weight || !kernels::can_fuse_conv_max_pool2d(node.input_shapes.at(0), weight->sizes(), terms)) return nullptr;
  return convolution_by(node.layer, [terms](const at::Tensor& x, const at::Tensor& w, const at::Tensor& b) {
    return Tensors{kernels::conv_max_pool2d(x, w, b, terms)};
  });
}

}  // namespace

void add_conv_max_pool(FusionRegistry& fusions) {
  const FusionPattern::Node convolution{"convolution", {"Conv2d"}};
  fusions.add(
      {.name = "ConvReLUMaxPool2d",
       .doc = "a first convolution of few channels, ReLU and MaxPool2d in one pass: equal but for rounding",
       .pattern = {.nodes = {convolution, {"relu", {"ReLU"}, {"convolution"}}, {"pool", {"MaxPool2d"}, {"relu"}}}},
       .fuse = [](const FusedLayers& layers) { return fuse(layers, true); },
       .is_fast_convolution = true});
  fusions.add({.name = "ConvMaxPool2d",
               .doc = "a first convolution of few channels and MaxPool2d in one pass: equal but for rounding",
               .pattern = {.nodes = {convolution, {"pool", {"MaxPool2d"}, {"convolution"}}}},
               .fuse = [](const FusedLayers& layers) { return fuse(layers, false); },
               .is_fast_convolution = true});
}

}  // namespace trainrun
