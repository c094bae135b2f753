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
  const auto padding = unit_convolution_padding(node);
  if (!padding) return nullptr;
  const auto& kernel = node.options<Convolution<2, false>>()->kernel_size;
  const std::vector<int64_t>& out = node.output_shapes.at(0);
  const bool pays =
      node.output_dtypes.at(0) == at::kFloat && out.size() == 4 &&
      kernels::winograd_pays({node.input_shapes.at(0)[1], out[1], kernel[0], kernel[1], out[2], out[3]}, false);
  if (!pays) return nullptr;
  return convolution_by(node.layer,
                        [padding = *padding](const at::Tensor& x, const at::Tensor& w, const at::Tensor& b) {
                          return kernels::fast_conv2d(x, w, b, padding);
                        });
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
