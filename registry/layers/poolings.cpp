#include <torch/nn/modules/pooling.h>

#include "registry/layer.h"

namespace trainrun {
namespace {

struct MaxPool2d {
  Pair kernel_size;
  std::optional<Pair> stride;
  Pair padding = 0;
  Pair dilation = 1;
  bool ceil_mode = false;
  static void describe(Fields<MaxPool2d>& f) {
    f.required("kernel_size", &MaxPool2d::kernel_size).at_least(1).doc("height and width of the window");
    f.optional("stride", &MaxPool2d::stride).at_least(1).doc("step of the window; kernel_size by default");
    f.optional("padding", &MaxPool2d::padding).at_least(0).doc("rows and columns of -inf added at each border");
    f.optional("dilation", &MaxPool2d::dilation).at_least(1).doc("distance between the window's points");
    f.optional("ceil_mode", &MaxPool2d::ceil_mode).doc("round the output's size up");
  }
  void check(Checker& checker) const {
    if (2 * padding[0] > kernel_size[0] || 2 * padding[1] > kernel_size[1]) {
      checker.fail("padding", "may be at most half of kernel_size");
    }
  }
  Layer build(const LayerInputs& in) const {
    in.require_dims(4, 4, "[N, C, H, W]");
    torch::nn::MaxPool2dOptions options(kernel_size);
    options.stride(stride.value_or(kernel_size)).padding(padding).dilation(dilation).ceil_mode(ceil_mode);
    return layer_of(torch::nn::MaxPool2d(options));
  }
};

/// A size, or [h, w] where null keeps what flows in.
using OutputSize = std::variant<int64_t, std::array<std::optional<int64_t>, 2>>;

template <class Module, class Options>
struct AdaptivePool2d {
  OutputSize output_size = int64_t{1};
  static void describe(Fields<AdaptivePool2d>& f) {
    f.required("output_size", &AdaptivePool2d::output_size)
        .at_least(1)
        .doc("height and width that come out; null keeps what flows in");
  }
  Layer build(const LayerInputs& in) const {
    in.require_dims(4, 4, "[N, C, H, W]");
    if (const auto* both = std::get_if<int64_t>(&output_size)) return layer_of(Module(Options({*both, *both})));
    const auto& sizes = std::get<1>(output_size);
    return layer_of(Module(Options({sizes[0], sizes[1]})));
  }
};

}  // namespace

void add_poolings(LayerRegistry& layers) {
  namespace nn = torch::nn;
  layers.add<MaxPool2d>("MaxPool2d", "the largest value in each window of [N, C, H, W]");
  layers.add<AdaptivePool2d<nn::AdaptiveAvgPool2d, nn::AdaptiveAvgPool2dOptions>>(
      "AdaptiveAvgPool2d", "means over windows chosen so that the output has the given size");
  layers.add<AdaptivePool2d<nn::AdaptiveMaxPool2d, nn::AdaptiveMaxPool2dOptions>>(
      "AdaptiveMaxPool2d", "maxima over windows chosen so that the output has the given size");
}

}  // namespace trainrun
