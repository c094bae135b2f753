#include <array>
#include <utility>
#include <variant>
#include <vector>

#include "registry/graph/fusion.h"
#include "registry/graph/graph.h"
#include "registry/kernels/convolution.h"
#include "registry/layers/convolutions.h"
#include "registry/layers/fusions/unit_convolution.h"

// A Conv2d of 1x1 by itself, computed as one product of matrices where that is quicker.

namespace trainrun {
namespace {

/// Whether nothing is added around the image.
bool has_no_padding(const Convolution<2, false>& conv) {
  const auto* sizes = std::get_if<Sizes<2>>(&conv.padding);
  return !sizes || ((*sizes)[0] == 0 && (*sizes)[1] == 0);  // "same" and "valid" add nothing to 1x1
}

std::shared_ptr<const Operation> fuse_point_convolution(const FusedLayers& layers) {
  const GraphNode& node = layers["convolution"];
  const auto* conv = node.options<Convolution<2, false>>();
  if (!conv || conv->kernel_size[0] != 1 || conv->kernel_size[1] != 1 || conv->groups != 1 || !has_no_padding(*conv)) {
    return nullptr;
  }
  const std::vector<int64_t>& out = node.output_shapes.at(0);
  const bool pays = node.output_dtypes.at(0) == at::kFloat && out.size() == 4 &&
                    kernels::point_product_pays(node.input_shapes.at(0)[1], out[1], out[2] * out[3]);
  if (!pays) return nullptr;
  const std::array<int64_t, 2> stride{conv->stride[0], conv->stride[1]};
  const auto convolution = [stride](const at::Tensor& x, const at::Tensor& w, const at::Tensor& b) {
    return Tensors{kernels::point_conv2d(x, w, b, stride)};
  };
  const auto passing_on = [stride](const at::Tensor& x, const at::Tensor& w, const at::Tensor& b) {
    auto [y, same] = kernels::point_conv2d_passing_on(x, w, b, stride);
    return Tensors{std::move(y), std::move(same)};
  };
  return convolution_by(node.layer, convolution, passing_on);
}

}  // namespace

void add_point_convolution(FusionRegistry& fusions) {
  fusions.add(
      {.name = "PointConv2d",
       .doc = "a 1x1 convolution over images with channels last as one product of matrices: equal but for rounding",
       .pattern = {.nodes = {{"convolution", {"Conv2d"}}}},
       .fuse = fuse_point_convolution,
       .is_fast_convolution = true});
}

}  // namespace trainrun
