#include <ATen/ops/addmm.h>
#include <ATen/ops/conv2d.h>
#include <ATen/ops/convolution_backward.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <array>
#include <vector>

#include "registry/kernels/convolution.h"
#include "registry/kernels/cpu_path.h"
#include "registry/kernels/plain_tensor.h"
#include "registry/tensors/gradient_places.h"

namespace trainrun::kernels {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr auto kPointsLast = at::MemoryFormat::ChannelsLast;

/// The points of x [N, C, H, W] that a stride meets.
at::Tensor met_points(const at::Tensor& x, const std::vector<int64_t>& stride) {
  return x.slice(2, 0, std::nullopt, stride[0]).slice(3, 0, std::nullopt, stride[1]);
}

bool is_unit(const std::vector<int64_t>& stride) { return stride[0] == 1 && stride[1] == 1; }

/// [N * H * W, C], a view of x [N, C, H, W], whose channels are last.
at::Tensor points_of(const at::Tensor& x) { return x.permute({0, 2, 3, 1}).view({-1, x.size(1)}); }

/// weight [K, C, 1, 1] as [K, C], a view.
at::Tensor point_matrix(const at::Tensor& weight) { return weight.view({weight.size(0), weight.size(1)}); }

at::Tensor empty_points(const at::Tensor& x, int64_t channels) {
  return at::empty({x.size(0), channels, x.size(2), x.size(3)}, x.options(), kPointsLast);
}

/// x with channels last.
at::Tensor point_product(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                         const std::vector<int64_t>& stride) {
  const at::Tensor met = met_points(x, stride).contiguous(kPointsLast);
  at::Tensor y = empty_points(met, weight.size(0));
  at::Tensor rows = points_of(y);
  if (bias.defined()) {
    at::addmm_out(rows, bias, points_of(met), point_matrix(weight).t());
  } else {
    at::mm_out(rows, points_of(met), point_matrix(weight).t());
  }
  return y;
}

at::Tensor point_input_gradient(const at::Tensor& grad_y, const at::Tensor& weight, at::IntArrayRef sizes,
                                const std::vector<int64_t>& stride) {
  at::Tensor met = empty_points(grad_y, weight.size(1));
  at::Tensor rows = points_of(met);
  at::mm_out(rows, points_of(grad_y), point_matrix(weight));
  if (is_unit(stride)) return met;
  at::Tensor grad_x = at::empty(sizes, grad_y.options(), kPointsLast).zero_();
  met_points(grad_x, stride).copy_(met);
  return grad_x;
}

/// In the memory where it is wanted, if there is some.
at::Tensor point_weight_gradient(const at::Tensor& x, const at::Tensor& grad_y, const at::Tensor& weight,
                                 const std::vector<int64_t>& stride) {
  at::Tensor gradient = take_gradient_place(weight);
  if (!gradient.defined()) gradient = at::empty(weight.sizes(), weight.options());
  at::Tensor matrix = point_matrix(gradient);
  at::mm_out(matrix, points_of(grad_y).t(), points_of(met_points(x, stride).contiguous(kPointsLast)));
  return gradient;
}

struct PointConv2d : torch::autograd::Function<PointConv2d> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& weight,
                            const std::optional<at::Tensor>& bias, const std::vector<int64_t>& stride) {
    context->save_for_backward({x, weight});
    context->saved_data["stride"] = stride;
    context->saved_data["has_bias"] = bias.has_value();
    return point_product(x, weight, bias.value_or(at::Tensor()), stride);
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor &x = saved[0], &weight = saved[1];
    const std::vector<int64_t> stride = context->saved_data["stride"].toIntVector();
    const bool has_bias = context->saved_data["has_bias"].toBool();
    const std::array<bool, 3> wanted = {context->needs_input_grad(0), context->needs_input_grad(1),
                                        has_bias && context->needs_input_grad(2)};
    if (c10::GradMode::is_enabled()) {  // by ATen's operations, which have derivatives themselves
      const std::vector<int64_t> one{1, 1}, zero{0, 0};
      const auto bias_sizes = has_bias ? at::OptionalIntArrayRef(weight.sizes().slice(0, 1)) : std::nullopt;
      const auto [grad_x, grad_weight, grad_bias] =
          at::convolution_backward(gradients[0], x, weight, bias_sizes, stride, zero, one, false, zero, 1, wanted);
      return {grad_x, grad_weight, grad_bias, {}};
    }
    const at::Tensor grad_y = gradients[0].contiguous(kPointsLast);
    variable_list result(4);
    if (wanted[0]) result[0] = point_input_gradient(grad_y, weight, x.sizes(), stride);
    if (wanted[1]) result[1] = point_weight_gradient(x, grad_y, weight, stride);
    if (wanted[2]) result[2] = points_of(grad_y).sum(0);
    return result;
  }
};

bool is_point_product(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  return x.dim() == 4 && weight.dim() == 4 && weight.size(2) == 1 && weight.size(3) == 1 &&
         x.size(1) == weight.size(1) && x.numel() > 0 && weight.numel() > 0 && is_plain_cpu(x) &&
         x.scalar_type() == at::kFloat && type_of_product(x) == at::kFloat && is_dense_float(weight) &&
         (!bias.defined() || (is_dense_float(bias) && bias.dim() == 1 && bias.size(0) == weight.size(0))) &&
         x.suggest_memory_format() == kPointsLast;
}

}  // namespace

bool point_product_pays(int64_t channels, int64_t filters, int64_t points) {
  constexpr int64_t kFewestChannels = 16, kFewestPoints = 4;
  const int64_t fewest = std::min(channels, filters);
  if (best_cpu_path() == CpuPath::kGeneric || fewest < kFewestChannels || points < kFewestPoints) return false;
  constexpr int64_t kSmallImage = 100, kManyChannels = 128;  // else oneDNN's kernel for AVX-512 is as quick, or quicker
  return best_cpu_path() == CpuPath::kAvx2 || points <= kSmallImage || fewest >= kManyChannels;
}

at::Tensor point_conv2d(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                        std::array<int64_t, 2> stride) {
  if (!is_point_product(x, weight, bias)) return at::conv2d(x, weight, bias, stride);
  const at::Tensor last = x.contiguous(kPointsLast);
  const std::vector<int64_t> steps(stride.begin(), stride.end());
  const bool is_trained = x.requires_grad() || weight.requires_grad() || (bias.defined() && bias.requires_grad());
  if (!c10::GradMode::is_enabled() || !is_trained) return point_product(last, weight, bias, steps);
  return PointConv2d::apply(last, weight, optional_of(bias), steps);
}

}  // namespace trainrun::kernels
