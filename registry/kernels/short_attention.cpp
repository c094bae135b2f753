#include "registry/kernels/short_attention.h"

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/autocast_mode.h>
#include <ATen/ops/_safe_softmax.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>

#include <cmath>
#include <limits>
#include <tuple>

#include "registry/kernels/bernoulli.h"
#include "registry/kernels/cpu_path.h"
#include "registry/kernels/plain_tensor.h"
#include "registry/kernels/short_attention_simd.h"

namespace trainrun::kernels {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

/// The type that the tensors are computed from: null where it is none of ours.
std::optional<at::ScalarType> stored_type(const at::Tensor& query) {
  const at::ScalarType own = query.scalar_type();
  const bool casts = at::autocast::is_autocast_enabled(at::kCPU) && own != at::kDouble;
  const at::ScalarType type = casts ? at::autocast::get_autocast_dtype(at::kCPU) : own;
  return type == at::kFloat || type == at::kBFloat16 ? std::optional(type) : std::nullopt;
}

/// Its features side by side.
at::Tensor in_rows(const at::Tensor& heads) { return heads.stride(3) == 1 ? heads : heads.contiguous(); }

AttentionRows rows_of(const at::Tensor& heads) {
  if (!heads.defined()) return {};
  // The loops write only to those of `Tensors` that they should.
  return {const_cast<void*>(heads.const_data_ptr()), heads.stride(0), heads.stride(1), heads.stride(2)};
}

/// The mask as numbers that are added, each query's side by side; of size 1 where it is the same for all.
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

/// One attention: its sizes, and the tensors that both passes read.
struct Attention {
  AttentionShape shape;
  at::Tensor query, key, value;
  at::Tensor mask;  // as `added_mask` gives it
  at::Tensor kept;  // 1 where a dropout keeps a weight
  CpuPath path;

  AttentionTensors tensors(const at::Tensor& y, const at::Tensor& normalization) const {
    AttentionTensors t{};
    t.query = rows_of(query);
    t.key = rows_of(key);
    t.value = rows_of(value);
    t.y = rows_of(y);
    if (mask.defined()) {
      const auto step = [&](int64_t dim) { return mask.size(dim) == 1 ? 0 : mask.stride(dim); };
      t.mask = {mask.const_data_ptr<float>(), step(0), step(1), step(2)};
    }
    if (kept.defined()) t.kept = static_cast<const uint8_t*>(kept.const_data_ptr());
    if (normalization.defined()) t.normalization = static_cast<float*>(normalization.mutable_data_ptr());
    return t;
  }

  template <class Pass>
  void run(bool backward, const Pass& pass) const {
    const int64_t scratch = TRAINRUN_LOOP_OF(path, attention_scratch)(shape, backward);
    constexpr int64_t kLine = 64 / sizeof(float);
    at::parallel_for(0, shape.batch * shape.key_heads, 1, [&](int64_t begin, int64_t end) {
      const at::Tensor memory = at::empty({scratch + kLine}, at::kFloat);
      auto address = reinterpret_cast<uintptr_t>(memory.mutable_data_ptr());
      address = (address + 63) / 64 * 64;
      pass(begin, end, reinterpret_cast<float*>(address));  // NOLINT(performance-no-int-to-ptr): aligned
    });
  }

  void forward_to(const at::Tensor& y, const at::Tensor& normalization) const {
    const AttentionTensors t = tensors(y, normalization);
    run(false, [&](int64_t begin, int64_t end, float* scratch) {
      TRAINRUN_LOOP_OF(path, attention_forward)(shape, t, begin, end, scratch);
    });
  }
  at::Tensor forward(const at::Tensor& normalization) const {
    at::Tensor y = at::empty_like(query);
    if (y.stride(3) != 1) y = at::empty(query.sizes(), query.options());
    forward_to(y, normalization);
    return y;
  }

  /// Writes the gradients of the queries, keys and values.
  void backward_to(const variable_list& gradients, const at::Tensor& y, const at::Tensor& normalization,
                   const at::Tensor& grad_y) const {
    const at::Tensor of_y = in_rows(grad_y);
    AttentionTensors t = tensors(y, normalization);
    t.grad_y = rows_of(of_y);
    t.grad_query = rows_of(gradients[0]);
    t.grad_key = rows_of(gradients[1]);
    t.grad_value = rows_of(gradients[2]);
    run(true, [&](int64_t begin, int64_t end, float* scratch) {
      TRAINRUN_LOOP_OF(path, attention_backward)(shape, t, begin, end, scratch);
    });
  }
  variable_list backward(const at::Tensor& y, const at::Tensor& normalization, const at::Tensor& grad_y) const {
    variable_list gradients;
    for (const at::Tensor& heads : {query, key, value}) gradients.push_back(at::empty_like(heads));
    backward_to(gradients, y, normalization, grad_y);
    return gradients;
  }
};

/// The gradients of `inputs` by ATen's operations, which have derivatives themselves.
variable_list derivable_gradients(const Attention& a, const variable_list& inputs, const at::Tensor& grad_y) {
  const AttentionShape& s = a.shape;
  const auto repeated = [&](const at::Tensor& heads) {
    return s.heads == s.key_heads ? heads : heads.repeat_interleave(s.heads / s.key_heads, 1);
  };
  at::Tensor scores = at::matmul(a.query, repeated(a.key).transpose(2, 3)) * s.scale;
  if (s.is_causal) {
    const at::Tensor unseen = at::ones({s.queries, s.keys}, scores.options().dtype(at::kBool)).triu(1);
    scores = scores.masked_fill(unseen, -std::numeric_limits<double>::infinity());
  }
  if (a.mask.defined()) scores = scores + a.mask;
  at::Tensor weights = at::_safe_softmax(scores, -1);
  if (a.kept.defined()) weights = weights * a.kept * s.kept_scale;
  const at::Tensor y = at::matmul(weights.to(a.value.scalar_type()), repeated(a.value));
  return torch::autograd::grad({y}, inputs, {grad_y}, std::nullopt, true);
}

AttentionShape shape_of(const at::Tensor& query, const at::Tensor& key, const AttentionTerms& terms) {
  const double scale = terms.scale.value_or(1 / std::sqrt(static_cast<double>(query.size(3))));
  const double kept = terms.dropout < 1 ? 1 / (1 - terms.dropout) : 0;
  return {query.size(0),
          query.size(1),
          key.size(1),
          query.size(2),
          key.size(2),
          query.size(3),
          query.scalar_type() == at::kBFloat16,
          terms.is_causal,
          static_cast<float>(scale),
          static_cast<float>(kept)};
}

/// What the backward pass must know, but for the mask.
void keep_terms(AutogradContext* context, const AttentionTerms& terms, CpuPath path) {
  context->saved_data["dropout"] = terms.dropout;
  context->saved_data["is_causal"] = terms.is_causal;
  context->saved_data["scale"] = terms.scale;
  context->saved_data["path"] = static_cast<int64_t>(path);
}
AttentionTerms kept_terms(AutogradContext* context) {
  auto& data = context->saved_data;
  return {{}, data["dropout"].toDouble(), data["is_causal"].toBool(), data["scale"].toOptional<double>()};
}
CpuPath kept_path(AutogradContext* context) { return static_cast<CpuPath>(context->saved_data["path"].toInt()); }

struct ShortAttention : torch::autograd::Function<ShortAttention> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& query, const at::Tensor& key,
                            const at::Tensor& value, const std::optional<at::Tensor>& mask,
                            const std::optional<at::Tensor>& kept, const AttentionTerms& terms, CpuPath path) {
    const Attention attention{shape_of(query, key, terms), query, key, value, mask.value_or(at::Tensor()),
                              kept.value_or(at::Tensor()), path};
    const at::Tensor normalization =
        at::empty({query.size(0), query.size(1), query.size(2)}, query.options().dtype(at::kFloat));
    const at::Tensor y = attention.forward(normalization);
    context->save_for_backward({query, key, value, attention.mask, attention.kept, y, normalization});
    keep_terms(context, terms, path);
    return y;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    const AttentionTerms terms = kept_terms(context);
    const Attention attention{
        shape_of(saved[0], saved[1], terms), saved[0], saved[1], saved[2], saved[3], saved[4], kept_path(context)};
    variable_list result;
    if (c10::GradMode::is_enabled()) {  // of other names: queries may be made of keys, where the search must not go on
      Attention other = attention;
      for (at::Tensor* const heads : {&other.query, &other.key, &other.value}) *heads = heads->view_as(*heads);
      result = derivable_gradients(other, {other.query, other.key, other.value}, gradients[0]);
    } else {
      result = attention.backward(saved[5], saved[6], gradients[0]);
    }
    result.resize(7);
    return result;
  }
};

/// Where queries, keys and values lie in [N, T, 3 * heads * D], or in [T, N, …] if `time` is 0.
struct Packing {
  int64_t heads, time;

  int64_t features(const at::Tensor& packed) const { return packed.size(2) / (3 * heads); }
  /// [N, heads, T, D] of [N, T, heads, D].
  at::Tensor turned(const at::Tensor& rows) const {
    return time == 1 ? rows.permute({0, 2, 1, 3}) : rows.permute({1, 2, 0, 3});
  }
  variable_list parts(const at::Tensor& packed) const {
    const at::Tensor all = packed.view({packed.size(0), packed.size(1), 3, heads, features(packed)});
    return {turned(all.select(2, 0)), turned(all.select(2, 1)), turned(all.select(2, 2))};
  }
  at::Tensor rows_of(const at::Tensor& y) const {  // [N, T, heads * D]
    return y.view({y.size(0), y.size(1), heads, y.size(2) / heads});
  }
};

Attention packed_attention_of(const Packing& packing, const at::Tensor& packed, const at::Tensor& mask,
                              const at::Tensor& kept, const AttentionTerms& terms, CpuPath path) {
  const variable_list parts = packing.parts(packed);
  return {shape_of(parts[0], parts[1], terms), parts[0], parts[1], parts[2], mask, kept, path};
}

struct PackedAttention : torch::autograd::Function<PackedAttention> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& packed, const std::optional<at::Tensor>& mask,
                            const std::optional<at::Tensor>& kept, const Packing& packing, const AttentionTerms& terms,
                            CpuPath path) {
    const Attention attention =
        packed_attention_of(packing, packed, mask.value_or(at::Tensor()), kept.value_or(at::Tensor()), terms, path);
    const AttentionShape& s = attention.shape;
    const at::Tensor normalization = at::empty({s.batch, s.heads, s.queries}, packed.options().dtype(at::kFloat));
    const at::Tensor y = at::empty({packed.size(0), packed.size(1), s.heads * s.features}, packed.options());
    attention.forward_to(packing.turned(packing.rows_of(y)), normalization);
    context->save_for_backward({packed, attention.mask, attention.kept, y, normalization});
    context->saved_data["heads"] = packing.heads;
    context->saved_data["time"] = packing.time;
    keep_terms(context, terms, path);
    return y;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    auto& data = context->saved_data;
    const AttentionTerms terms = kept_terms(context);
    const Packing packing{data["heads"].toInt(), data["time"].toInt()};
    const Attention attention = packed_attention_of(packing, saved[0], saved[1], saved[2], terms, kept_path(context));
    const at::Tensor of_y = packing.turned(packing.rows_of(gradients[0].contiguous()));
    variable_list result(6);
    if (c10::GradMode::is_enabled()) {
      result[0] = derivable_gradients(attention, {saved[0]}, of_y)[0];
      return result;
    }
    result[0] = at::empty_like(saved[0]);
    attention.backward_to(packing.parts(result[0]), packing.turned(packing.rows_of(saved[3])), saved[4], of_y);
    return result;
  }
};

bool mask_fits(const at::Tensor& mask, const at::Tensor& query, int64_t keys) {
  if (!mask.defined()) return true;
  const bool is_known = mask.scalar_type() == at::kBool || mask.is_floating_point();
  if (!is_known || mask.requires_grad() || !is_plain_cpu(mask) || mask.dim() > 4 || mask.dim() < 2) return false;
  const std::array<int64_t, 4> expected = {query.size(0), query.size(1), query.size(2), keys};
  for (int64_t i = 1; i <= mask.dim(); ++i) {
    if (mask.size(-i) != 1 && mask.size(-i) != expected[static_cast<size_t>(4 - i)]) return false;
  }
  return true;
}

}  // namespace

bool supports_short_attention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                              const AttentionTerms& terms) {
  constexpr int64_t kFewestQueries = 8, kFewestKeys = 16;
  if (best_cpu_path() == CpuPath::kGeneric || query.dim() != 4 || key.dim() != 4 || value.dim() != 4) return false;
  if (!is_plain_cpu(query) || !is_plain_cpu(key) || !is_plain_cpu(value) || !stored_type(query)) return false;
  const bool alike = query.scalar_type() == key.scalar_type() && key.scalar_type() == value.scalar_type() &&
                     key.sizes() == value.sizes() && query.size(0) == key.size(0) && query.size(3) == key.size(3) &&
                     key.size(1) > 0 && query.size(1) % key.size(1) == 0;
  return alike && query.size(0) > 0 && query.size(2) >= kFewestQueries && key.size(2) >= kFewestKeys &&
         key.size(2) <= kMostAttentionKeys && query.size(3) > 0 && query.size(3) <= kMostAttentionFeatures &&
         terms.dropout >= 0 && terms.dropout < 1 && !(terms.is_causal && terms.mask.defined()) &&
         mask_fits(terms.mask, query, key.size(2));
}

at::Tensor short_attention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                           const AttentionTerms& terms, CpuPath path) {
  const at::ScalarType type = *stored_type(query);
  const at::Tensor q = in_rows(query.to(type)), k = in_rows(key.to(type)), v = in_rows(value.to(type));
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::DispatchKey::AutocastCPU);
  const at::Tensor mask = added_mask(terms.mask, k.size(2));
  at::Tensor kept;
  if (terms.dropout > 0) {  // as at::dropout draws, for weights [N, heads, L, S] in the order of memory
    kept = at::empty({q.size(0), q.size(1), q.size(2), k.size(2)}, q.options().dtype(at::kByte));
    bernoulli(kept, 1 - terms.dropout, std::nullopt);
  }
  const bool is_trained = q.requires_grad() || k.requires_grad() || v.requires_grad();
  if (!c10::GradMode::is_enabled() || !is_trained) {
    return Attention{shape_of(q, k, terms), q, k, v, mask, kept, path}.forward({});
  }
  AttentionTerms rest = terms;
  rest.mask = at::Tensor();
  return ShortAttention::apply(q, k, v, optional_of(mask), optional_of(kept), rest, path);
}

std::optional<at::Tensor> packed_attention(const at::Tensor& packed, int64_t heads, int64_t time,
                                           const AttentionTerms& terms, CpuPath path) {
  const bool fits = packed.dim() == 3 && heads > 0 && packed.size(2) % (3 * heads) == 0 && packed.is_contiguous() &&
                    is_plain_cpu(packed) && stored_type(packed) == packed.scalar_type();
  if (!fits) return std::nullopt;
  const Packing packing{heads, time};
  {
    const c10::AutoGradMode no_gradients(false);
    const variable_list parts = packing.parts(packed);
    if (!supports_short_attention(parts[0], parts[1], parts[2], terms)) return std::nullopt;
  }
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::DispatchKey::AutocastCPU);
  const int64_t length = packed.size(time), batch = packed.size(1 - time);
  const at::Tensor mask = added_mask(terms.mask, length);
  at::Tensor kept;
  if (terms.dropout > 0) {  // as in short_attention
    kept = at::empty({batch, heads, length, length}, packed.options().dtype(at::kByte));
    bernoulli(kept, 1 - terms.dropout, std::nullopt);
  }
  AttentionTerms rest = terms;
  rest.mask = at::Tensor();
  if (c10::GradMode::is_enabled() && packed.requires_grad()) {
    return PackedAttention::apply(packed, optional_of(mask), optional_of(kept), packing, rest, path);
  }
  const c10::AutoGradMode no_gradients(false);
  at::Tensor y = at::empty({packed.size(0), packed.size(1), packed.size(2) / 3}, packed.options());
  packed_attention_of(packing, packed, mask, kept, rest, path).forward_to(packing.turned(packing.rows_of(y)), {});
  return y;
}

}  // namespace trainrun::kernels
