#include <array>
#include <variant>

#include "registry/components/layers/convolutions.h"
#include "registry/graph/fusion.h"
#include "registry/graph/graph.h"
#include "registry/kernels/convolution.h"

// A Conv2d by itself, computed by Winograd's algorithm where that is the quicker one.

namespace trainrun {
namespace {

using Conv2d = Convolution<2, false>;

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

bool is_one(const Sizes<2>& sizes) { return sizes[0] == 1 && sizes[1] == 1; }

std::shared_ptr<const Operation> fuse_winograd(const FusedLayers& layers) {
  const GraphNode& node = layers["convolution"];
  const auto* conv = node.options<Conv2d>();
  if (!conv || !is_one(conv->stride) || !is_one(conv->dilation) || conv->groups != 1 || conv->padding_mode != "zeros") {
    return nullptr;
  }
  const auto& kernel = conv->kernel_size;
  std::array<int64_t, 2> padding = {0, 0};
  if (const auto* sizes = std::get_if<Sizes<2>>(&conv->padding)) {
    padding = {(*sizes)[0], (*sizes)[1]};
  } else if (std::get<std::string>(conv->padding) == "same") {
    padding = {kernel[0] / 2, kernel[1] / 2};  // of odd sizes; others are not computed so
  }
  const std::vector<int64_t>& out = node.output_shapes.at(0);
  const bool pays =
      node.output_dtypes.at(0) == at::kFloat && out.size() == 4 &&
      kernels::winograd_pays({node.input_shapes.at(0)[1], out[1], kernel[0], kernel[1], out[2], out[3]}, false);
  return pays ? std::make_shared<WinogradConvolution>(node.layer, padding) : nullptr;
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
