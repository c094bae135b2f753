#include <array>

#include "registry/graph/fusion.h"
#include "registry/graph/graph.h"
#include "registry/kernels/convolution.h"
#include "registry/layers/convolutions.h"
#include "registry/layers/fusions/unit_convolution.h"

// A Conv2d by itself, computed by Winograd's algorithm where that is the quicker one.

namespace trainrun {
namespace {

class WinogradConvolution : public Operation {
 public:
  WinogradConvolution(const Layer& layer, std::array<int64_t, 2> padding) : layer_(layer), padding_(padding) {}

  Tensors run(const Tensors& inputs) const override {
    const auto parameters = layer_.state->named_parameters(false);
    const at::Tensor* bias = parameters.find("bias");
    return {kernels::fast_conv2d(inputs[0], *parameters.find("weight"), bias ? *bias : at::Tensor(), padding_)};
  }
  Traits traits() const override { return kComputed; }

 private:
  Layer layer_;
  std::array<int64_t, 2> padding_;
};

std::shared_ptr<const Operation> fuse_winograd(const FusedLayers& layers) {
  const GraphNode& node = layers["convolution"];
  const auto padding = unit_convolution_padding(node);
  if (!padding) return nullptr;
  const auto& kernel = node.options<Convolution<2, false>>()->kernel_size;
  const std::vector<int64_t>& out = node.output_shapes.at(0);
  const bool pays =
      node.output_dtypes.at(0) == at::kFloat && out.size() == 4 &&
      kernels::winograd_pays({node.input_shapes.at(0)[1], out[1], kernel[0], kernel[1], out[2], out[3]}, false);
  return pays ? std::make_shared<WinogradConvolution>(node.layer, *padding) : nullptr;
}

}  // namespace

void add_winograd(FusionRegistry& fusions) {
  fusions.add({.name = "WinogradConv2d",
               .doc = "a 3x3 or 5x5 convolution of stride 1 by Winograd's algorithm: equal but for rounding",
               .pattern = {.nodes = {{"convolution", {"Conv2d"}}}},
               .fuse = fuse_winograd,
               .is_fast_convolution = true});
}

}  // namespace trainrun
