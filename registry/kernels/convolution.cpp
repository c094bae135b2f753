#include "registry/kernels/convolution.h"

#include <ATen/ops/conv2d.h>
#include <ATen/ops/convolution_backward.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <tuple>

#include "registry/kernels/plain_tensor.h"
#include "registry/kernels/winograd.h"

namespace trainrun::kernels {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr auto kChannelsLast = at::MemoryFormat::ChannelsLast;

Winograd winograd_of(const at::Tensor& x, const at::Tensor& weight, int64_t stride,
                     const std::vector<int64_t>& padding) {
  return {x.sizes(),    weight.sizes(), stride, {padding[0], padding[1]}, x.scalar_type() == at::kBFloat16,
          std::nullopt, best_cpu_path()};
}

/// The gradients by ATen's operations, which have derivatives themselves.
variable_list derivable_gradients(const at::Tensor& x, const at::Tensor& weight, bool has_bias,
                                  const at::Tensor& grad_y, int64_t stride, const std::vector<int64_t>& padding,
                                  std::array<bool, 3> wanted) {
  const std::vector<int64_t> one{1, 1}, zero{0, 0}, steps{stride, stride};
  const at::IntArrayRef channels = weight.sizes().slice(0, 1);
  const at::OptionalIntArrayRef bias_sizes = has_bias ? at::OptionalIntArrayRef(channels) : at::OptionalIntArrayRef();
  const auto [grad_x, grad_weight, grad_bias] = at::convolution_backward(
      grad_y, x, weight.to(x.scalar_type()), bias_sizes, steps, padding, one, false, zero, 1, wanted);
  const auto as_weight = [&](const at::Tensor& gradient) {
    return gradient.defined() ? gradient.to(weight.scalar_type()) : gradient;
  };
  return {grad_x, as_weight(grad_weight), as_weight(grad_bias), {}, {}, {}};
}

struct WinogradConv2d : torch::autograd::Function<WinogradConv2d> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& weight,
                            const std::optional<at::Tensor>& bias, int64_t stride, const std::vector<int64_t>& padding,
                            at::MemoryFormat format) {
    const at::Tensor last = x.contiguous(kChannelsLast);
    context->save_for_backward({last, weight});
    context->saved_data["stride"] = stride;
    context->saved_data["padding"] = padding;
    context->saved_data["has_bias"] = bias.has_value();
    context->saved_data["format"] = static_cast<int64_t>(format);
    return winograd_of(last, weight, stride, padding)
        .forward(last, weight.contiguous(), bias.value_or(at::Tensor()))
        .contiguous(format);
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor &x = saved[0], &weight = saved[1];
    const int64_t stride = context->saved_data["stride"].toInt();
    const std::vector<int64_t> padding = context->saved_data["padding"].toIntVector();
    const bool has_bias = context->saved_data["has_bias"].toBool();
    const std::array<bool, 3> wanted = {context->needs_input_grad(0), context->needs_input_grad(1),
                                        has_bias && context->needs_input_grad(2)};
    if (c10::GradMode::is_enabled()) {
      return derivable_gradients(x, weight, has_bias, gradients[0], stride, padding, wanted);
    }
    const Winograd winograd = winograd_of(x, weight, stride, padding);
    const at::Tensor grad_y = gradients[0].contiguous(kChannelsLast);
    variable_list result(6);
    const auto format = static_cast<at::MemoryFormat>(context->saved_data["format"].toInt());
    if (wanted[0]) result[0] = winograd.input_gradient(grad_y, weight.contiguous()).contiguous(format);
    if (wanted[1]) result[1] = winograd.filter_gradient(x, grad_y);
    if (wanted[2]) result[2] = grad_y.sum({0, 2, 3}, false, at::kFloat);
    return result;
  }
};

bool is_plain_float(const at::Tensor& tensor) { return is_plain_cpu(tensor) && tensor.scalar_type() == at::kFloat; }

/// Whether Winograd's algorithm computes it, in which type.
std::optional<at::ScalarType> winograd_type(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                                            int64_t stride, std::array<int64_t, 2> padding) {
  if (x.dim() != 4 || weight.dim() != 4 || x.size(1) != weight.size(1) || !is_plain_cpu(x) || !is_plain_float(weight) ||
      (bias.defined() && !is_plain_float(bias))) {
    return std::nullopt;
  }
  const auto type = type_of_product(x);
  const auto left = [&](int64_t dim) { return x.size(dim + 2) + 2 * padding[dim] - weight.size(dim + 2); };
  if (left(0) < 0 || left(1) < 0) return std::nullopt;  // the filter is larger than the image
  const ConvolutionSizes sizes = {.channels = x.size(1),
                                  .filters = weight.size(0),
                                  .kernel_height = weight.size(2),
                                  .kernel_width = weight.size(3),
                                  .stride = stride,
                                  .out_height = left(0) / stride + 1,
                                  .out_width = left(1) / stride + 1,
                                  .images = std::max<int64_t>(1, x.size(0))};
  return type && x.numel() > 0 && winograd_pays(sizes, type == at::kBFloat16) ? type : std::nullopt;
}

}  // namespace

bool winograd_pays(const ConvolutionSizes& s, bool is_bfloat16) {
  constexpr int64_t kFewestOutputs = 256;  // below, a call costs as much as what it computes
  if (best_cpu_path() == CpuPath::kGeneric || s.kernel_height != s.kernel_width || s.out_height < 1 ||
      s.out_width < 1) {
    return false;
  }
  const auto tile = best_winograd_tile(s.kernel_height, s.stride, s.out_height, s.out_width);
  if (!tile || std::max(s.channels, s.filters) > kMostWinogradChannels) return false;
  if (s.images > 0 && s.images * s.out_height * s.out_width < kFewestOutputs) return false;
  const double work = winograd_work(*tile, s.out_height, s.out_width);
  const int64_t fewest = std::min(s.channels, s.filters);
  if (s.stride != 1) return !is_bfloat16 && fewest >= 32 && work <= 0.75;
  return is_bfloat16 ? fewest >= 64 && work <= 0.3 : fewest >= 32 && work <= 0.5;
}

at::Tensor fast_conv2d(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, int64_t stride,
                       std::array<int64_t, 2> padding) {
  const auto type = winograd_type(x, weight, bias, stride, padding);
  if (!type) return at::conv2d(x, weight, bias, {stride, stride}, padding);
  const at::Tensor typed = x.to(*type);
  const std::vector<int64_t> added(padding.begin(), padding.end());
  const bool is_last = x.suggest_memory_format() == kChannelsLast || weight.suggest_memory_format() == kChannelsLast;
  const auto format = is_last ? kChannelsLast : at::MemoryFormat::Contiguous;  // as ATen's
  const bool is_trained = typed.requires_grad() || weight.requires_grad() || (bias.defined() && bias.requires_grad());
  if (!c10::GradMode::is_enabled() || !is_trained) {
    const at::Tensor last = typed.contiguous(kChannelsLast);
    return winograd_of(last, weight, stride, added).forward(last, weight.contiguous(), bias).contiguous(format);
  }
  return WinogradConv2d::apply(typed, weight, optional_of(bias), stride, added, format);
}

}  // namespace trainrun::kernels
