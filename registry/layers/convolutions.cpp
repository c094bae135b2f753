#include "registry/layers/convolutions.h"

#include <ATen/ops/conv1d.h>
#include <ATen/ops/conv2d.h>
#include <ATen/ops/conv3d.h>
#include <ATen/ops/conv_transpose1d.h>
#include <ATen/ops/conv_transpose2d.h>
#include <ATen/ops/conv_transpose3d.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/pad.h>
#include <torch/nn/init.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <cmath>

#include "registry/layers/onnx_parts.h"

namespace trainrun {
namespace {

TRAINRUN_OP_OF_DIMS(conv, )
TRAINRUN_OP_OF_DIMS(conv_transpose, )

}  // namespace

/// Weights as torch.nn's _ConvNd makes them. LibTorch's own modules take kernels in the wrong order where padding is
/// 'same' and padding_mode is not 'zeros'.
struct ConvolutionModule : torch::nn::Module {
  ConvolutionModule(const std::vector<int64_t>& weight_sizes, int64_t out_channels, bool with_bias)
      : weight(register_parameter("weight", at::empty(weight_sizes))) {
    torch::nn::init::kaiming_uniform_(weight, std::sqrt(5.0));
    if (!with_bias) return;
    bias = register_parameter("bias", at::empty({out_channels}));
    const int64_t fan_in = weight.numel() / weight.size(0);
    const double bound = 1 / std::sqrt(static_cast<double>(fan_in));
    torch::nn::init::uniform_(bias, -bound, bound);
  }
  at::Tensor weight;
  at::Tensor bias;
};

template <int kDims, bool kTransposed>
void Convolution<kDims, kTransposed>::describe(Fields<Convolution>& f) {
  f.required("out_channels", &Convolution::out_channels).at_least(1).doc("number of feature maps in the output");
  f.required("kernel_size", &Convolution::kernel_size).at_least(1).doc("size of the window");
  f.optional("stride", &Convolution::stride).at_least(1).doc("step of the window");
  if constexpr (kTransposed) {
    f.optional("padding", &Convolution::padding)
        .at_least(0)
        .doc("points cut off at each border: those that the corresponding convolution would add");
    f.optional("output_padding", &Convolution::output_padding)
        .at_least(0)
        .doc("points added at the end of each dimension; fewer than stride or dilation");
  } else {
    f.optional("padding", &Convolution::padding)
        .at_least(0)
        .one_of({"valid", "same"})
        .doc("points added at each border");
    f.rule({.when = {the("padding").is("same")},
            .all = {the("stride").is_at_most(1)},
            .at = "padding",
            .message = "'same' needs a stride of 1"});
  }
  f.optional("dilation", &Convolution::dilation).at_least(1).doc("distance between the window's points");
  f.optional("groups", &Convolution::groups).at_least(1).doc("groups of channels that do not see each other");
  f.optional("bias", &Convolution::bias).doc("adds a learned number to each feature map");
  std::vector<std::string> modes = {"zeros"};
  if (!kTransposed) modes.insert(modes.end(), {"reflect", "replicate", "circular"});
  f.optional("padding_mode", &Convolution::padding_mode).one_of(modes).doc("value of the added points");
  f.optional("in_channels", &Convolution::in_channels).at_least(1).doc("number of the input's channels; inferred");
}

template <int kDims, bool kTransposed>
void Convolution<kDims, kTransposed>::check(Checker& checker) const {
  if (out_channels % groups != 0) checker.fail("groups", "must divide out_channels, " + std::to_string(out_channels));
  bool output_padding_fits = true;
  for (size_t i = 0; i < kDims; ++i) output_padding_fits &= output_padding[i] < std::max(stride[i], dilation[i]);
  if (!output_padding_fits) checker.fail("output_padding", "must be less than stride or dilation");
}

template <int kDims, bool kTransposed>
bool Convolution<kDims, kTransposed>::is_same() const {
  if constexpr (kTransposed) {
    return false;
  } else {
    return padding == Padding("same");
  }
}

/// [left, right, top, bottom, …], the last dimension first; the odd point of 'same' comes last.
template <int kDims, bool kTransposed>
std::vector<int64_t> Convolution<kDims, kTransposed>::added_points() const {
  std::vector<int64_t> added;
  const auto* sizes = std::get_if<Sizes<kDims>>(&padding);
  for (size_t i = kDims; i-- > 0;) {
    const int64_t total = is_same() ? dilation[i] * (kernel_size[i] - 1) : sizes ? 2 * (*sizes)[i] : 0;
    added.insert(added.end(), {total / 2, total - total / 2});
  }
  return added;
}

template <int kDims, bool kTransposed>
typename Convolution<kDims, kTransposed>::Function Convolution<kDims, kTransposed>::function() const
  requires kTransposed
{
  return [*this](const at::Tensor& input, const at::Tensor& weight, const at::Tensor& bias) {
    return conv_transpose<kDims>(input, weight, bias, stride, padding, output_padding, groups, dilation);
  };
}

template <int kDims, bool kTransposed>
typename Convolution<kDims, kTransposed>::Function Convolution<kDims, kTransposed>::function() const
  requires(!kTransposed)
{
  const Sizes<kDims> none = 0;
  if (padding_mode != "zeros") {
    return [*this, none, added = added_points()](const at::Tensor& input, const at::Tensor& weight,
                                                 const at::Tensor& bias) {
      return conv<kDims>(at::pad(input, added, padding_mode), weight, bias, stride, none, dilation, groups);
    };
  }
  if (is_same()) {
    return [*this](const at::Tensor& input, const at::Tensor& weight, const at::Tensor& bias) {
      return conv<kDims>(input, weight, bias, stride, c10::string_view("same"), dilation, groups);
    };
  }
  const auto* sizes = std::get_if<Sizes<kDims>>(&padding);
  return [*this, zeros = sizes ? *sizes : none](const at::Tensor& input, const at::Tensor& weight,
                                                const at::Tensor& bias) {
    return conv<kDims>(input, weight, bias, stride, zeros, dilation, groups);
  };
}

template <int kDims, bool kTransposed>
Layer Convolution<kDims, kTransposed>::build(const LayerInputs& in) const {
  require_image<kDims>(in);
  const int64_t channels = in.infer("in_channels", in_channels, 1);
  if (channels % groups != 0) {
    throw LayerError("groups is " + std::to_string(groups) + ", which does not divide the " + std::to_string(channels) +
                     " channels of the input");
  }
  std::vector<int64_t> sizes = {kTransposed ? channels : out_channels,
                                (kTransposed ? out_channels : channels) / groups};
  sizes.insert(sizes.end(), kernel_size.begin(), kernel_size.end());
  const auto module = std::make_shared<ConvolutionModule>(sizes, out_channels, bias);
  return {module,
          [module, compute = function()](const Tensors& inputs) -> Tensors {
            return {compute(inputs[0], module->weight, module->bias)};
          },
          kComputed};
}

template <int kDims, bool kTransposed>
void Convolution<kDims, kTransposed>::onnx(OnnxForm& form) const {
  std::vector<int64_t> pads(size_t{2} * kDims);   // before each dimension, then after each
  std::vector<int64_t> added(size_t{2} * kDims);  // likewise: points that nothing is computed for, but the bias
  bool adds = false;
  if constexpr (kTransposed) {
    for (size_t i = 0; i < kDims; ++i) {  // output_padding: fewer points are cut off behind
      pads[i] = padding[i];
      pads[kDims + i] = std::max<int64_t>(padding[i] - output_padding[i], 0);
      added[kDims + i] = std::max<int64_t>(output_padding[i] - padding[i], 0);
      adds |= added[kDims + i] > 0;
    }
  } else {
    const std::vector<int64_t> own = added_points();
    for (size_t i = 0; i < kDims; ++i) {
      pads[kDims - 1 - i] = own[2 * i];
      pads[2 * kDims - 1 - i] = own[2 * i + 1];
    }
  }
  OnnxValue x = form.input();
  if (padding_mode != "zeros") {
    x = onnx_padded(form, x, pads, padding_mode, 0);
    pads.assign(pads.size(), 0);
  }
  const OnnxAttributes attributes = {{"strides", std::vector<int64_t>(stride.begin(), stride.end())},
                                     {"pads", pads},
                                     {"dilations", std::vector<int64_t>(dilation.begin(), dilation.end())},
                                     {"kernel_shape", std::vector<int64_t>(kernel_size.begin(), kernel_size.end())},
                                     {"group", groups}};
  OnnxValues inputs = {x, form.state("weight")};
  if (bias && !adds) inputs.push_back(form.state("bias"));
  OnnxValue result = form.op(kTransposed ? "ConvTranspose" : "Conv", inputs, attributes);
  if (adds) {
    result = onnx_padded(form, result, added, "constant", 0);
    std::vector<int64_t> channels(kDims + 1, 1);
    channels[0] = -1;
    if (bias) result = form.op("Add", {result, form.reshape(form.state("bias"), channels)});
  }
  form.give(result);
}

namespace {

template <int kDims>
void add_convolutions_of(LayerRegistry& layers) {
  const std::string dims = std::to_string(kDims) + "d";
  layers.add<Convolution<kDims, false>>("Conv" + dims, doc_of_dims<kDims>("convolution over"));
  layers.add<Convolution<kDims, true>>("ConvTranspose" + dims,
                                       doc_of_dims<kDims>("transposed convolution, which enlarges, over"));
}

}  // namespace

void add_convolutions(LayerRegistry& layers) {
  add_convolutions_of<1>(layers);
  add_convolutions_of<2>(layers);
  add_convolutions_of<3>(layers);
}

}  // namespace trainrun
