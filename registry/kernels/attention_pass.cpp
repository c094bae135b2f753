#include "registry/kernels/attention_pass.h"

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/autocast_mode.h>
#include <ATen/ops/_safe_softmax.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>
#include <limits>

#include "registry/kernels/bfloat16_attention.h"
#include "registry/kernels/matrix_product.h"

namespace trainrun::kernels {

std::optional<at::ScalarType> stored_type(const at::Tensor& query) {
  const at::ScalarType own = query.scalar_type();
  const bool casts = at::autocast::is_autocast_enabled(at::kCPU) && own != at::kDouble;
  const at::ScalarType type = casts ? at::autocast::get_autocast_dtype(at::kCPU) : own;
  return type == at::kFloat || type == at::kBFloat16 ? std::optional(type) : std::nullopt;
}

AttentionRows rows_of(const at::Tensor& heads) {
  if (!heads.defined()) return {};
  // The loops write only to those of `Tensors` that they should.
  return {const_cast<void*>(heads.const_data_ptr()), heads.stride(0), heads.stride(1), heads.stride(2)};
}

at::Tensor added_mask(const at::Tensor& mask, int64_t keys) {
  if (!mask.defined()) return mask;
  at::Tensor added = mask;
  if (mask.scalar_type() == at::kBool) {
    added = at::zeros(mask.sizes(), mask.options().dtype(at::kFloat))
                .masked_fill_(mask.logical_not(), -std::numeric_limits<double>::infinity());
  }
  added = added.to(at::kFloat);
  while (added.dim() < 4) added = added.unsqueeze(0);
  if (added.size(3) != keys) added = added.expand({-1, -1, -1, keys});
  return added.contiguous();
}

AttentionShape with_terms(AttentionShape sizes, const AttentionTerms& terms) {
  sizes.is_causal = terms.is_causal;
  sizes.scale = static_cast<float>(terms.scale.value_or(1 / std::sqrt(static_cast<double>(sizes.features))));
  sizes.kept_scale = static_cast<float>(terms.dropout < 1 ? 1 / (1 - terms.dropout) : 0);
  return sizes;
}

void on_threads(int64_t number, int64_t scratch,
                const std::function<void(int64_t begin, int64_t end, float* scratch)>& pass) {
  constexpr int64_t kLine = 64 / sizeof(float);
  at::parallel_for(0, number, 1, [&](int64_t begin, int64_t end) {
    const at::Tensor memory = at::empty({scratch + kLine}, at::kFloat);
    auto address = reinterpret_cast<uintptr_t>(memory.mutable_data_ptr());
    address = (address + 63) / 64 * 64;
    pass(begin, end, reinterpret_cast<float*>(address));  // NOLINT(performance-no-int-to-ptr): aligned
  });
}

AttentionLoops attention_loops(const AttentionShape& shape, CpuPath path) {
#if defined(__x86_64__)
  if (shape.is_bfloat16 && path == CpuPath::kAvx512 && has_bfloat16_products()) {
    return {attention_scratch_bf16, attention_forward_bf16, attention_backward_bf16};
  }
#else
  static_cast<void>(shape);
#endif
  return {TRAINRUN_LOOP_OF(path, attention_scratch), TRAINRUN_LOOP_OF(path, attention_forward),
          TRAINRUN_LOOP_OF(path, attention_backward)};
}

AttentionTensors Attention::tensors(const at::Tensor& normalization) const {
  AttentionTensors t{};
  t.query = query;
  t.key = key;
  t.value = value;
  if (mask.defined()) {
    const auto step = [&](int64_t dim) { return mask.size(dim) == 1 ? 0 : mask.stride(dim); };
    t.mask = {mask.const_data_ptr<float>(), step(0), step(1), step(2)};
  }
  if (kept.defined()) t.kept = static_cast<const uint8_t*>(kept.const_data_ptr());
  if (normalization.defined()) t.normalization = static_cast<float*>(normalization.mutable_data_ptr());
  return t;
}

AttentionTensors Attention::forward_tensors(const AttentionRows& y, const at::Tensor& normalization) const {
  AttentionTensors t = tensors(normalization);
  t.y = y;
  return t;
}

AttentionTensors Attention::backward_tensors(const std::array<AttentionRows, 3>& gradients,
                                             const at::Tensor& normalization, const AttentionRows& grad_y) const {
  AttentionTensors t = tensors(normalization);
  t.grad_y = grad_y;
  t.grad_query = gradients[0];
  t.grad_key = gradients[1];
  t.grad_value = gradients[2];
  return t;
}

void Attention::forward(const AttentionRows& y, const at::Tensor& normalization) const {
  const AttentionTensors t = forward_tensors(y, normalization);
  const AttentionLoops loops = attention_loops(shape, path);
  on_threads(shape.batch * shape.key_heads, loops.scratch(shape, false),
             [&](int64_t begin, int64_t end, float* scratch) { loops.forward(shape, t, begin, end, scratch); });
}

void Attention::backward(const std::array<AttentionRows, 3>& gradients, const at::Tensor& normalization,
                         const AttentionRows& grad_y) const {
  const AttentionTensors t = backward_tensors(gradients, normalization, grad_y);
  const AttentionLoops loops = attention_loops(shape, path);
  on_threads(shape.batch * shape.key_heads, loops.scratch(shape, true),
             [&](int64_t begin, int64_t end, float* scratch) { loops.backward(shape, t, begin, end, scratch); });
}

std::vector<at::Tensor> derivable_gradients(const Attention& attention, const Heads& of,
                                            const std::vector<at::Tensor>& inputs, const at::Tensor& grad_y) {
  const AttentionShape& s = attention.shape;
  const auto repeated = [&](const at::Tensor& heads) {
    return s.heads == s.key_heads ? heads : heads.repeat_interleave(s.heads / s.key_heads, 1);
  };
  at::Tensor scores = at::matmul(of.query, repeated(of.key).transpose(2, 3)) * s.scale;
  if (s.is_causal) {
    const at::Tensor unseen = at::ones({s.queries, s.keys}, scores.options().dtype(at::kBool)).triu(1);
    scores = scores.masked_fill(unseen, -std::numeric_limits<double>::infinity());
  }
  if (attention.mask.defined()) scores = scores + attention.mask;
  at::Tensor weights = at::_safe_softmax(scores, -1);
  if (attention.kept.defined()) weights = weights * attention.kept * s.kept_scale;
  const at::Tensor y = at::matmul(weights.to(of.value.scalar_type()), repeated(of.value));
  return torch::autograd::grad({y}, inputs, {grad_y}, std::nullopt, true);
}

}  // namespace trainrun::kernels
