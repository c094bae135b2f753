#include "registry/kernels/convolution.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/alias.h>
#include <ATen/ops/conv2d.h>
#include <ATen/ops/convolution_backward.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <tuple>
#include <utility>

#include "registry/kernels/cpu_path.h"
#include "registry/kernels/matrix_product.h"
#include "registry/kernels/own_products.h"
#include "registry/kernels/plain_tensor.h"
#include "registry/kernels/product_convolution.h"
#include "registry/kernels/winograd.h"

namespace trainrun::kernels {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr auto kChannelsLast = at::MemoryFormat::ChannelsLast;

enum class Algorithm : int64_t { kWinograd, kProduct };

/// Whether a backward pass may overwrite a gradient that it was given, as autograd does where it adds to one.
bool is_of_nobody_else(const at::Tensor& gradient) {
  return gradient.use_count() == 1 && gradient.storage().use_count() == 1 && is_plain_cpu(gradient);
}

/// A convolution, and who computes it.
struct FastConvolution {
  Algorithm algorithm;
  std::array<int64_t, 2> stride, padding;

  Winograd winograd(const at::Tensor& x, const at::Tensor& weight) const {
    return {x.sizes(),    weight.sizes(), stride[0], padding, x.scalar_type() == at::kBFloat16,
            std::nullopt, best_cpu_path()};
  }
  ProductConvolution product(const at::Tensor& x, const at::Tensor& weight) const {
    return {x.sizes(), weight.sizes(), stride, padding, x.scalar_type() == at::kBFloat16};
  }
  at::Tensor forward(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) const {
    const at::Tensor w = weight.contiguous();
    return is_product() ? product(x, w).forward(x, w, bias) : winograd(x, w).forward(x, w, bias);
  }
  at::Tensor input_gradient(const at::Tensor& x, const at::Tensor& grad_y, const at::Tensor& weight) const {
    const at::Tensor w = weight.contiguous();
    return is_product() ? product(x, w).input_gradient(grad_y, w) : winograd(x, w).input_gradient(grad_y, w);
  }
  /// The same and `other`, which is defined, another gradient of x.
  at::Tensor input_gradient_added(const at::Tensor& other, const at::Tensor& x, const at::Tensor& grad_y,
                                  const at::Tensor& weight) const {
    const bool may_add = is_product() && is_of_nobody_else(other) && other.sizes() == x.sizes() &&
                         other.scalar_type() == at::kFloat && other.is_contiguous(kChannelsLast);
    const at::Tensor w = weight.contiguous();
    if (may_add && product(x, w).add_input_gradient(other, grad_y, w)) return other;
    return other + input_gradient(x, grad_y, w);
  }
  at::Tensor filter_gradient(const at::Tensor& x, const at::Tensor& grad_y, const at::Tensor& weight) const {
    return is_product() ? product(x, weight).filter_gradient(x, grad_y, weight)
                        : winograd(x, weight).filter_gradient(x, grad_y);
  }
  bool is_product() const { return algorithm == Algorithm::kProduct; }
};

std::vector<int64_t> both(const std::array<int64_t, 2>& sizes) { return {sizes.begin(), sizes.end()}; }

/// The gradients by ATen's operations, which have derivatives themselves.
variable_list derivable_gradients(const FastConvolution& conv, const at::Tensor& x, const at::Tensor& weight,
                                  bool has_bias, const at::Tensor& grad_y, std::array<bool, 3> wanted) {
  const std::vector<int64_t> one{1, 1}, zero{0, 0};
  const at::IntArrayRef channels = weight.sizes().slice(0, 1);
  const at::OptionalIntArrayRef bias_sizes = has_bias ? at::OptionalIntArrayRef(channels) : at::OptionalIntArrayRef();
  const auto [grad_x, grad_weight, grad_bias] =
      at::convolution_backward(grad_y, x, weight.to(x.scalar_type()), bias_sizes, both(conv.stride), both(conv.padding),
                               one, false, zero, 1, wanted);
  const auto as_weight = [&](const at::Tensor& gradient) {
    return gradient.defined() ? gradient.to(weight.scalar_type()) : gradient;
  };
  return {grad_x, as_weight(grad_weight), as_weight(grad_bias), {}, {}, {}, {}, {}};
}

/// Gives the convolution and, if it `passes_on` that, x as well.
struct FastConv2d : torch::autograd::Function<FastConv2d> {
  static variable_list forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& weight,
                               const std::optional<at::Tensor>& bias, int64_t algorithm,
                               const std::vector<int64_t>& stride, const std::vector<int64_t>& padding,
                               at::MemoryFormat format, bool passes_on) {
    const at::Tensor last = x.contiguous(kChannelsLast);
    context->save_for_backward({last, weight});
    context->saved_data["algorithm"] = algorithm;
    context->saved_data["stride"] = stride;
    context->saved_data["padding"] = padding;
    context->saved_data["has_bias"] = bias.has_value();
    context->saved_data["format"] = static_cast<int64_t>(format);
    variable_list outputs{saved_in(context).forward(last, weight, bias.value_or(at::Tensor())).contiguous(format)};
    if (passes_on) {
      context->set_materialize_grads(false);
      const at::AutoDispatchBelowADInplaceOrView no_view;  // whose gradient would pass by this function
      outputs.push_back(at::alias(x));
      outputs[1].unsafeGetTensorImpl()->set_version_counter(x.unsafeGetTensorImpl()->version_counter());
    }
    return outputs;
  }

  static variable_list backward(AutogradContext* context, variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor &x = saved[0], &weight = saved[1];
    const FastConvolution conv = saved_in(context);
    const at::Tensor other = gradients.size() > 1 ? std::move(gradients[1]) : at::Tensor();
    variable_list result(8);
    if (!gradients[0].defined()) {
      result[0] = other;
      return result;
    }
    const bool has_bias = context->saved_data["has_bias"].toBool();
    const std::array<bool, 3> wanted = {context->needs_input_grad(0), context->needs_input_grad(1),
                                        has_bias && context->needs_input_grad(2)};
    if (c10::GradMode::is_enabled()) {
      result = derivable_gradients(conv, x, weight, has_bias, gradients[0], wanted);
      if (other.defined()) result[0] = result[0].defined() ? other + result[0] : other;
      return result;
    }
    const at::Tensor grad_y = gradients[0].contiguous(kChannelsLast);
    const auto format = static_cast<at::MemoryFormat>(context->saved_data["format"].toInt());
    if (wanted[0]) {
      result[0] = other.defined() ? conv.input_gradient_added(other, x, grad_y, weight)
                                  : conv.input_gradient(x, grad_y, weight).contiguous(format);
    }
    if (wanted[1]) result[1] = conv.filter_gradient(x, grad_y, weight);
    if (wanted[2]) result[2] = grad_y.sum({0, 2, 3}, false, at::kFloat);
    return result;
  }

  static FastConvolution saved_in(AutogradContext* context) {
    const auto sizes = [&](const char* name) {
      const std::vector<int64_t> saved = context->saved_data[name].toIntVector();
      return std::array{saved[0], saved[1]};
    };
    return {static_cast<Algorithm>(context->saved_data["algorithm"].toInt()), sizes("stride"), sizes("padding")};
  }
};

/// The convolution of x, which has the type that it is computed in; and x, by way of the convolution if it `passes_on`
/// that, so that the gradient of who reads it comes here.
variable_list convolve(const FastConvolution& conv, const at::Tensor& x, const at::Tensor& weight,
                       const at::Tensor& bias, at::MemoryFormat format, bool passes_on = false) {
  const bool is_trained = x.requires_grad() || weight.requires_grad() || (bias.defined() && bias.requires_grad());
  if (!c10::GradMode::is_enabled() || !is_trained) {
    return {conv.forward(x.contiguous(kChannelsLast), weight, bias).contiguous(format), x};
  }
  passes_on = passes_on && x.requires_grad();
  variable_list outputs = FastConv2d::apply(x, weight, optional_of(bias), static_cast<int64_t>(conv.algorithm),
                                            both(conv.stride), both(conv.padding), format, passes_on);
  if (!passes_on) outputs.push_back(x);
  return outputs;
}

bool is_plain_float(const at::Tensor& tensor) { return is_plain_cpu(tensor) && tensor.scalar_type() == at::kFloat; }

/// The sizes of what conv2d(x, weight, bias, stride, padding) would compute, if it is one that this file may compute itself.
std::optional<ConvolutionSizes> sizes_of(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                                         const FastConvolution& conv) {
  if (x.dim() != 4 || weight.dim() != 4 || x.size(1) != weight.size(1) || x.numel() == 0 || weight.numel() == 0 ||
      !is_plain_cpu(x) || !is_plain_float(weight)) {
    return std::nullopt;
  }
  const bool takes_bias =
      !bias.defined() || (is_plain_float(bias) && bias.dim() == 1 && bias.size(0) == weight.size(0));
  if (!takes_bias) return std::nullopt;
  const auto left = [&](int64_t dim) { return x.size(dim + 2) + 2 * conv.padding[dim] - weight.size(dim + 2); };
  if (left(0) < 0 || left(1) < 0) return std::nullopt;  // the filter is larger than the image
  const int64_t height = left(0) / conv.stride[0] + 1, width = left(1) / conv.stride[1] + 1;
  return ConvolutionSizes{.channels = x.size(1),
                          .filters = weight.size(0),
                          .kernel_height = weight.size(2),
                          .kernel_width = weight.size(3),
                          .stride = std::max(conv.stride[0], conv.stride[1]),
                          .out_height = height,
                          .out_width = width,
                          .images = std::max<int64_t>(1, x.size(0)),
                          .keeps_size = height == x.size(2) && width == x.size(3)};
}

/// A convolution of 1x1; and x, if it `passes_on` that.
std::array<at::Tensor, 2> point_convolution(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                                            std::array<int64_t, 2> stride, bool passes_on) {
  const FastConvolution conv{Algorithm::kProduct, stride, {0, 0}};
  const auto sizes = sizes_of(x, weight, bias, conv);
  const auto type = sizes ? type_of_product(x) : std::nullopt;
  const bool is_point = type && sizes->kernel_height == 1 && sizes->kernel_width == 1 &&
                        x.suggest_memory_format() == kChannelsLast && weight.is_contiguous();
  const bool pays = is_point && (type == at::kFloat || patch_product_pays(*sizes));
  if (!pays) return {at::conv2d(x, weight, bias, stride), x};
  const bool is_same = *type == x.scalar_type();  // else what would be passed on is a copy
  variable_list outputs = convolve(conv, x.to(*type), weight, bias, kChannelsLast, passes_on && is_same);
  return {outputs[0], is_same ? outputs[1] : x};
}

}  // namespace

bool winograd_pays(const ConvolutionSizes& s, bool is_bfloat16) {
  constexpr int64_t kFewestOutputs = 256;  // below, a call costs as much as what it computes
  if (best_cpu_path() == CpuPath::kGeneric || s.kernel_height != s.kernel_width || s.out_height < 1 ||
      s.out_width < 1) {
    return false;
  }
  const auto tile = best_winograd_tile(s.kernel_height, s.stride, s.keeps_size, s.out_height, s.out_width);
  if (!tile || std::max(s.channels, s.filters) > kMostWinogradChannels) return false;
  if (s.images > 0 && s.images * s.out_height * s.out_width < kFewestOutputs) return false;
  const double work = winograd_work(*tile, s.out_height, s.out_width);
  const int64_t fewest = std::min(s.channels, s.filters);
  if (s.stride != 1) return !is_bfloat16 && fewest >= 32 && work <= 0.75;
  return is_bfloat16 ? fewest >= 64 && work <= 0.3 : fewest >= 32 && work <= 0.5;
}

bool patch_product_pays(const ConvolutionSizes& s) {
  constexpr int64_t kFewestRows = 32, kFewestChannels = 32, kMostPoints = 64, kMostPatches = 16;
  const int64_t taps = s.kernel_height * s.kernel_width, points = s.out_height * s.out_width;
  if (s.kernel_height != s.kernel_width || (s.kernel_height != 1 && s.kernel_height != 3)) return false;
  if (!has_bfloat16_products() || std::min(s.channels, s.filters) < kFewestChannels) return false;
  if (s.filters % 2 != 0 || s.channels * taps % 2 != 0) return false;  // the products take pairs
  if (s.images > 0 && s.images * points < kFewestRows) return false;
  return points <= (taps == 1 ? kMostPoints : kMostPatches);
}

at::Tensor fast_conv2d(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, int64_t stride,
                       std::array<int64_t, 2> padding) {
  FastConvolution conv{Algorithm::kWinograd, {stride, stride}, padding};
  const auto sizes = sizes_of(x, weight, bias, conv);
  const auto type = sizes ? type_of_product(x) : std::nullopt;
  const bool is_bfloat16 = type == at::kBFloat16;
  if (type && !winograd_pays(*sizes, is_bfloat16)) conv.algorithm = Algorithm::kProduct;
  if (!type || (conv.is_product() && !(is_bfloat16 && patch_product_pays(*sizes)))) {
    return at::conv2d(x, weight, bias, {stride, stride}, padding);
  }
  const bool is_last = x.suggest_memory_format() == kChannelsLast || weight.suggest_memory_format() == kChannelsLast;
  const auto format = is_last ? kChannelsLast : at::MemoryFormat::Contiguous;  // as ATen's
  return convolve(conv, x.to(*type), weight, bias, format)[0];
}

bool point_product_pays(int64_t channels, int64_t filters, int64_t points) {
  constexpr int64_t kFewestChannels = 16, kFewestPoints = 4;
  const int64_t fewest = std::min(channels, filters);
  if (best_cpu_path() == CpuPath::kGeneric || fewest < kFewestChannels || points < kFewestPoints) return false;
  if (best_cpu_path() == CpuPath::kAvx2 || uses_own_products()) return true;
  constexpr int64_t kSmallImage = 100, kManyChannels = 128;  // else oneDNN's kernel is as quick as MKL's, or quicker
  return points <= kSmallImage || fewest >= kManyChannels;
}

at::Tensor point_conv2d(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                        std::array<int64_t, 2> stride) {
  return point_convolution(x, weight, bias, stride, false)[0];
}

std::array<at::Tensor, 2> point_conv2d_passing_on(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                                                  std::array<int64_t, 2> stride) {
  return point_convolution(x, weight, bias, stride, true);
}

}  // namespace trainrun::kernels
