#include "registry/kernels/batch_norm.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/batch_norm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/native_batch_norm_backward.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "registry/kernels/batch_norm_simd.h"
#include "registry/kernels/parts.h"
#include "registry/kernels/plain_tensor.h"

// What is known of each channel is a few rows of float32 in one tensor [kinds, channels].

namespace trainrun::kernels {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr int64_t kNumbersOfPart = 32768;  // fewer are not worth a thread

NormRows norm_rows_of(const at::Tensor& x) {
  const int64_t channels = x.size(1);
  return {x.numel() / channels, channels, x.scalar_type() == at::kBFloat16};
}

/// Calls call(rows of the part, bytes to it, part) in as many parts as threads are worth having.
template <class Call>
int64_t in_parts_of(const NormRows& all, const Call& call) {
  const int64_t worth = std::max<int64_t>(1, all.rows * all.channels / kNumbersOfPart);
  const int64_t parts = std::min<int64_t>({worth, all.rows, at::get_num_threads()});
  in_parts(all.rows, parts, [&](int64_t begin, int64_t end, int64_t part) {
    const int64_t bytes = begin * all.channels * (all.is_bfloat16 ? 2 : 4);
    call(NormRows{end - begin, all.channels, all.is_bfloat16}, bytes, part);
  });
  return parts;
}

const char* at_byte(const at::Tensor& tensor, int64_t bytes) {
  return tensor.defined() ? static_cast<const char*>(tensor.const_data_ptr()) + bytes : nullptr;
}
char* at_byte_of(const at::Tensor& tensor, int64_t bytes) {
  return tensor.defined() ? static_cast<char*>(tensor.mutable_data_ptr()) + bytes : nullptr;
}

/// Two sums of each channel over all rows; call(rows, bytes, first, second) adds those of some.
template <class Call>
std::vector<double> two_sums(const NormRows& all, const Call& call) {
  const auto of_part = static_cast<size_t>(2 * all.channels);
  std::vector<double> sums(of_part * static_cast<size_t>(std::max(1, at::get_num_threads())));
  const int64_t parts = in_parts_of(all, [&](const NormRows& rows, int64_t bytes, int64_t part) {
    double* const own = sums.data() + of_part * static_cast<size_t>(part);
    call(rows, bytes, own, own + all.channels);
  });
  for (size_t i = of_part; i < of_part * static_cast<size_t>(parts); ++i) sums[i % of_part] += sums[i];
  sums.resize(of_part);
  return sums;
}

enum Kind : uint8_t { kMean, kInverse, kScale, kBias, kKinds };

/// The rows of a tensor [kinds, channels].
const float* row(const at::Tensor& kinds, int64_t kind) { return kinds.const_data_ptr<float>() + kind * kinds.size(1); }

NormScale scale_of(const at::Tensor& kinds) { return {row(kinds, kMean), row(kinds, kScale), row(kinds, kBias)}; }

void set_kinds(const at::Tensor& kinds, int64_t c, double mean, double variance, const BatchNorm& norm) {
  auto* const to = kinds.mutable_data_ptr<float>() + c;
  const int64_t channels = kinds.size(1);
  const double inverse = 1 / std::sqrt(variance + norm.eps);
  const double weight = norm.weight.defined() ? norm.weight.const_data_ptr<float>()[c] : 1;
  const double bias = norm.bias.defined() ? norm.bias.const_data_ptr<float>()[c] : 0;
  to[kMean * channels] = static_cast<float>(mean);
  to[kInverse * channels] = static_cast<float>(inverse);
  to[kScale * channels] = static_cast<float>(inverse * weight);
  to[kBias * channels] = static_cast<float>(bias);
}

/// The mean of each channel over the first rows: near enough to that of all for sums of squares apart from it.
std::vector<float> center_of(const at::Tensor& x, CpuPath path) {
  constexpr int64_t kRows = 32;
  NormRows some = norm_rows_of(x);
  some.rows = std::min(some.rows, kRows);
  const auto channels = static_cast<size_t>(some.channels);
  std::vector<float> center(channels);
  std::vector<double> sums(2 * channels);
  TRAINRUN_LOOP_OF(path, norm_sums)
  (some, x.const_data_ptr(), center.data(), sums.data(), sums.data() + channels);
  for (size_t c = 0; c < channels; ++c) center[c] = static_cast<float>(sums[c] / static_cast<double>(some.rows));
  return center;
}

/// What the running statistics become, as ATen's: the variance is that of a sample.
void update_running(const BatchNorm& norm, int64_t c, double mean, double variance) {
  const auto follow = [&](const at::Tensor& running, double newest) {
    if (!running.defined()) return;
    float& value = running.mutable_data_ptr<float>()[c];
    value = static_cast<float>((1 - norm.momentum) * static_cast<double>(value) + norm.momentum * newest);
  };
  follow(norm.running_mean, mean);
  follow(norm.running_var, variance);
}

at::Tensor kinds_of_batch(const at::Tensor& x, const BatchNorm& norm, CpuPath path) {
  const NormRows all = norm_rows_of(x);
  const std::vector<float> center = center_of(x, path);
  const std::vector<double> sums =
      two_sums(all, [&](const NormRows& rows, int64_t bytes, double* first, double* second) {
        TRAINRUN_LOOP_OF(path, norm_sums)(rows, at_byte(x, bytes), center.data(), first, second);
      });
  at::Tensor kinds = at::empty({kKinds, all.channels}, at::kFloat);
  const auto count = static_cast<double>(all.rows);
  for (int64_t c = 0; c < all.channels; ++c) {
    const auto i = static_cast<size_t>(c);
    const double apart = sums[i] / count, mean = static_cast<double>(center[i]) + apart;
    const double squares = std::max(0.0, sums[i + center.size()] - count * apart * apart);
    set_kinds(kinds, c, mean, std::isnan(sums[i]) ? sums[i] : squares / count, norm);
    update_running(norm, c, mean, squares / (count - 1));
  }
  for (const at::Tensor& changed : {norm.running_mean, norm.running_var}) {
    if (changed.defined()) changed.unsafeGetTensorImpl()->bump_version();
  }
  return kinds;
}

at::Tensor kinds_of_running(const BatchNorm& norm) {
  const int64_t channels = norm.running_mean.numel();
  at::Tensor kinds = at::empty({kKinds, channels}, at::kFloat);
  for (int64_t c = 0; c < channels; ++c) {
    set_kinds(kinds, c, norm.running_mean.const_data_ptr<float>()[c], norm.running_var.const_data_ptr<float>()[c],
              norm);
  }
  return kinds;
}

at::Tensor output_of(const at::Tensor& x, const at::Tensor& added, const at::Tensor& kinds, bool has_relu,
                     CpuPath path) {
  at::Tensor y = at::empty_like(x);
  in_parts_of(norm_rows_of(x), [&](const NormRows& rows, int64_t bytes, int64_t) {
    TRAINRUN_LOOP_OF(path, norm_output)
    (rows, at_byte(x, bytes), at_byte(added, bytes), scale_of(kinds), has_relu, at_byte_of(y, bytes));
  });
  return y;
}

at::Tensor without_gaps(const at::Tensor& tensor) {
  return tensor.contiguous(tensor.dim() == 4 ? at::MemoryFormat::ChannelsLast : at::MemoryFormat::Contiguous);
}

/// The gradients by ATen's operations, which have derivatives themselves. `given`: that of the norm's output.
variable_list derivable_gradients(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& kinds,
                                  const at::Tensor& given, double eps) {
  auto [grad_x, grad_weight, grad_bias] =
      at::native_batch_norm_backward(given, x, optional_of(weight), std::nullopt, std::nullopt, kinds[kMean].clone(),
                                     kinds[kInverse].clone(), true, eps, {true, weight.defined(), true});
  return {grad_x, given, grad_weight, grad_bias};
}

/// Of x, `added`, the weight and the bias. `y`: the output of a ReLU after a sum, else undefined.
variable_list gradients_of(const at::Tensor& x, const at::Tensor& y, const at::Tensor& kinds, const at::Tensor& grad_y,
                           bool has_relu, CpuPath path) {
  const NormRows all = norm_rows_of(x);
  const NormMask mask = !has_relu ? NormMask::kNone : y.defined() ? NormMask::kRead : NormMask::kComputed;
  const at::Tensor masked = y.defined() ? at::empty_like(x) : at::Tensor();
  const NormScale by = scale_of(kinds);
  const std::vector<double> sums =
      two_sums(all, [&](const NormRows& rows, int64_t bytes, double* first, double* second) {
        TRAINRUN_LOOP_OF(path, norm_gradient_sums)
        (rows, mask, at_byte(x, bytes), at_byte(y, bytes), by, at_byte(grad_y, bytes), at_byte_of(masked, bytes), first,
         second);
      });
  const at::Tensor affine = at::empty({2, all.channels}, at::kFloat),
                   factors = at::empty({2, all.channels}, at::kFloat);
  auto* const of_affine = affine.mutable_data_ptr<float>();
  auto* const of_factors = factors.mutable_data_ptr<float>();
  for (int64_t c = 0; c < all.channels; ++c) {
    const double sum = sums[static_cast<size_t>(c)], product = sums[static_cast<size_t>(all.channels + c)];
    const double inverse = row(kinds, kInverse)[c], scale = row(kinds, kScale)[c];
    const auto count = static_cast<double>(all.rows);
    of_affine[c] = static_cast<float>(product * inverse);
    of_affine[all.channels + c] = static_cast<float>(sum);
    of_factors[c] = static_cast<float>(-scale * inverse * inverse * product / count);
    of_factors[all.channels + c] = static_cast<float>(-scale * sum / count);
  }
  at::Tensor grad_x = at::empty_like(x);
  const at::Tensor& given = masked.defined() ? masked : grad_y;
  in_parts_of(all, [&](const NormRows& rows, int64_t bytes, int64_t) {
    TRAINRUN_LOOP_OF(path, norm_gradient)
    (rows, mask, at_byte(x, bytes), at_byte(given, bytes), by, {row(factors, 0), row(factors, 1)},
     at_byte_of(grad_x, bytes));
  });
  return {grad_x, masked, affine[0], affine[1]};
}

struct OwnBatchNorm : torch::autograd::Function<OwnBatchNorm> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const std::optional<at::Tensor>& added,
                            const std::optional<at::Tensor>& weight, const std::optional<at::Tensor>& bias,
                            BatchNorm norm, bool has_relu, CpuPath path) {
    norm.weight = weight.value_or(at::Tensor());
    norm.bias = bias.value_or(at::Tensor());
    const at::Tensor kinds = kinds_of_batch(x, norm, path);
    at::Tensor y = output_of(x, added.value_or(at::Tensor()), kinds, has_relu, path);
    context->save_for_backward({x, norm.weight, added ? y : at::Tensor(), kinds});
    context->saved_data["has_bias"] = bias.has_value();
    context->saved_data["eps"] = norm.eps;
    context->saved_data["relu"] = has_relu;
    context->saved_data["path"] = static_cast<int64_t>(path);
    return y;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor &x = saved[0], &weight = saved[1], &y = saved[2], &kinds = saved[3];
    const auto path = static_cast<CpuPath>(context->saved_data["path"].toInt());
    const bool has_relu = context->saved_data["relu"].toBool();
    variable_list result;
    if (c10::GradMode::is_enabled()) {
      at::Tensor given = gradients[0];
      if (has_relu) given = given * ((y.defined() ? y.detach() : output_of(x.detach(), {}, kinds, true, path)) > 0);
      result = derivable_gradients(x, weight, kinds, given, context->saved_data["eps"].toDouble());
    } else {
      result = gradients_of(x, y, kinds, without_gaps(gradients[0]), has_relu, path);
    }
    if (!y.defined()) result[1] = at::Tensor();  // nothing was added
    if (!weight.defined()) result[2] = at::Tensor();
    if (!context->saved_data["has_bias"].toBool()) result[3] = at::Tensor();
    result.resize(7);
    return result;
  }
};

bool is_computed_here(const at::Tensor& x, const at::Tensor& added, const BatchNorm& norm) {
  if (!is_plain_cpu(x) || (x.scalar_type() != at::kFloat && x.scalar_type() != at::kBFloat16) || !is_of_rows(x)) {
    return false;
  }
  if (x.numel() < 2 * x.size(1) || (!norm.uses_batch && !norm.running_mean.defined())) return false;
  if (added.defined() &&
      (!is_plain_cpu(added) || added.scalar_type() != x.scalar_type() || added.sizes() != x.sizes())) {
    return false;
  }
  for (const at::Tensor& tensor : {norm.weight, norm.bias, norm.running_mean, norm.running_var}) {
    if (tensor.defined() && (!is_dense_float(tensor) || tensor.numel() != x.size(1))) return false;
  }
  return true;
}

at::Tensor computed(const at::Tensor& x, const at::Tensor& added, const BatchNorm& norm, bool has_relu, CpuPath path) {
  bool is_trained = false;
  for (const at::Tensor& tensor : {x, added, norm.weight, norm.bias}) {
    is_trained = is_trained || (tensor.defined() && tensor.requires_grad());
  }
  is_trained = is_trained && c10::GradMode::is_enabled();
  if (!is_computed_here(x, added, norm) || (is_trained && !norm.uses_batch)) {
    at::Tensor y = at::batch_norm(x, norm.weight, norm.bias, norm.running_mean, norm.running_var, norm.uses_batch,
                                  norm.momentum, norm.eps, false);
    if (added.defined()) y = y + added;
    return has_relu ? at::relu(y) : y;
  }
  const at::Tensor other = added.defined() ? without_gaps(added) : added;
  if (!is_trained) {
    const at::Tensor kinds = norm.uses_batch ? kinds_of_batch(x, norm, path) : kinds_of_running(norm);
    return output_of(x, other, kinds, has_relu, path);
  }
  return OwnBatchNorm::apply(x, optional_of(other), optional_of(norm.weight), optional_of(norm.bias), norm, has_relu,
                             path);
}

}  // namespace

bool is_of_rows(const at::Tensor& x) {
  return x.dim() == 2 ? x.is_contiguous() : x.dim() == 4 ? x.is_contiguous(at::MemoryFormat::ChannelsLast) : false;
}

at::Tensor batch_norm(const at::Tensor& x, const BatchNorm& norm, CpuPath path) {
  return computed(x, {}, norm, false, path);
}

at::Tensor batch_norm_relu(const at::Tensor& x, const at::Tensor& added, const BatchNorm& norm, CpuPath path) {
  return computed(x, added, norm, true, path);
}

}  // namespace trainrun::kernels
