#include <array>
#include <vector>

#include "registry/graph/fusion.h"
#include "registry/graph/graph.h"
#include "registry/kernels/convolution.h"
#include "registry/layers/convolutions.h"
#include "registry/layers/fusions/unit_convolution.h"

// A Conv2d by itself, computed by Winograd's algorithm where that is the quicker one.

namespace trainrun {
namespace {

std::shared_ptr<const Operation> fuse_winograd(const FusedLayers& layers) {
  const GraphNode& node = layers["convolution"];
  const auto padding = plain_convolution_padding(node);
  if (!padding) return nullptr;
  const auto* conv = node.options<Convolution<2, false>>();
  const auto &kernel = conv->kernel_size, &stride = conv->stride;
  const std::vector<int64_t>&in = node.input_shapes.at(0), &out = node.output_shapes.at(0);
  if (stride[0] != stride[1] || node.output_dtypes.at(0) != at::kFloat || out.size() != 4) return nullptr;
  const kernels::ConvolutionSizes sizes{.channels = in[1],
                                        .filters = out[1],
                                        .kernel_height = kernel[0],
                                        .kernel_width = kernel[1],
                                        .stride = stride[0],
                                        .out_height = out[2],
                                        .out_width = out[3],
                                        .keeps_size = in[2] == out[2] && in[3] == out[3]};
  if (!kernels::winograd_pays(sizes, false)) return nullptr;
  return convolution_by(node.layer, [padding = *padding, stride = stride[0]](const at::Tensor& x, const at::Tensor& w,
                                                                             const at::Tensor& b) {
    return Tensors{kernels::fast_conv2d(x, w, b, stride, padding)};
  });
}

}  // namespace

void add_winograd(FusionRegistry& fusions) {
  fusions.add({.name = "WinogradConv2d",
               .doc = "a 3x3 or 5x5 convolution by Winograd's algorithm: equal but for rounding",
               .pattern = {.nodes = {{"convolution", {"Conv2d"}}}},
               .fuse = fuse_winograd,
               .is_fast_convolution = true});
}

}  // namespace trainrun
