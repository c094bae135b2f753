#include "registry/kernels/short_attention.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <c10/core/GradMode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/csrc/autograd/custom_function.h>

#include <array>
#include <vector>

#include "registry/kernels/attention_pass.h"
#include "registry/kernels/bernoulli.h"
#include "registry/kernels/cpu_path.h"
#include "registry/kernels/plain_tensor.h"

namespace trainrun::kernels {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

/// Its features side by side.
at::Tensor in_rows(const at::Tensor& heads) { return heads.stride(3) == 1 ? heads : heads.contiguous(); }

/// Memory for the output.
at::Tensor output_for(const at::Tensor& query) {
  at::Tensor y = at::empty_like(query);
  return y.stride(3) == 1 ? y : at::empty(query.sizes(), query.options());
}

AttentionShape sizes_of(const at::Tensor& query, const at::Tensor& key) {
  AttentionShape sizes{};
  sizes.batch = query.size(0);
  sizes.heads = query.size(1);
  sizes.key_heads = key.size(1);
  sizes.queries = query.size(2);
  sizes.keys = key.size(2);
  sizes.features = query.size(3);
  sizes.is_bfloat16 = query.scalar_type() == at::kBFloat16;
  return sizes;
}
Attention attention_of(const Heads& of, const at::Tensor& mask, const at::Tensor& kept, const AttentionTerms& terms,
                       CpuPath path) {
  return {with_terms(sizes_of(of.query, of.key), terms),
          rows_of(of.query),
          rows_of(of.key),
          rows_of(of.value),
          mask,
          kept,
          path};
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
    const Attention attention =
        attention_of({query, key, value}, mask.value_or(at::Tensor()), kept.value_or(at::Tensor()), terms, path);
    const at::Tensor normalization =
        at::empty({query.size(0), query.size(1), query.size(2), 2}, query.options().dtype(at::kFloat));
    const at::Tensor y = output_for(query);
    attention.forward(rows_of(y), normalization);
    context->save_for_backward({query, key, value, attention.mask, attention.kept, normalization});
    keep_terms(context, terms, path);
    return y;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    const AttentionTerms terms = kept_terms(context);
    const Heads heads{saved[0], saved[1], saved[2]};
    const Attention attention = attention_of(heads, saved[3], saved[4], terms, kept_path(context));
    variable_list result;
    if (c10::GradMode::is_enabled()) {  // of other names: queries may be made of keys, where the search must not go on
      const Heads other{heads.query.view_as(heads.query), heads.key.view_as(heads.key),
                        heads.value.view_as(heads.value)};
      result = derivable_gradients(attention, other, {other.query, other.key, other.value}, gradients[0]);
    } else {
      const at::Tensor of_y = in_rows(gradients[0]);
      for (const at::Tensor& part : {heads.query, heads.key, heads.value}) result.push_back(at::empty_like(part));
      attention.backward({rows_of(result[0]), rows_of(result[1]), rows_of(result[2])}, saved[5], rows_of(of_y));
    }
    result.resize(7);
    return result;
  }
};

/// Where queries, keys and values lie in [N, T, 3 * heads * D], or in [T, N, …] if `time` is 0.
struct Packing {
  int64_t heads, time;

  AttentionShape sizes(const at::Tensor& packed) const {
    AttentionShape sizes{};
    sizes.batch = packed.size(1 - time);
    sizes.heads = sizes.key_heads = heads;
    sizes.queries = sizes.keys = packed.size(time);
    sizes.features = packed.size(2) / (3 * heads);
    sizes.is_bfloat16 = packed.scalar_type() == at::kBFloat16;
    return sizes;
  }
  /// Of [N, T, parts * heads * D] without gaps, one of the parts.
  AttentionRows rows(const at::Tensor& tensor, int64_t parts, int64_t part) const {
    const int64_t features = tensor.size(2) / (parts * heads);
    auto* const begin = static_cast<char*>(const_cast<void*>(tensor.const_data_ptr()));  // as in rows_of
    return {begin + part * heads * features * tensor.element_size(), tensor.stride(1 - time), features,
            tensor.stride(time)};
  }
  std::array<AttentionRows, 3> parts(const at::Tensor& packed) const {
    return {rows(packed, 3, 0), rows(packed, 3, 1), rows(packed, 3, 2)};
  }
  Attention attention(const at::Tensor& packed, const at::Tensor& mask, const at::Tensor& kept,
                      const AttentionTerms& terms, CpuPath path) const {
    const auto [query, key, value] = parts(packed);
    return {with_terms(sizes(packed), terms), query, key, value, mask, kept, path};
  }
  at::Tensor output(const at::Tensor& packed) const {
    return at::empty({packed.size(0), packed.size(1), packed.size(2) / 3}, packed.options());
  }

  /// As tensors [N, heads, T, D].
  at::Tensor turned(const at::Tensor& rows) const {
    const at::Tensor split = rows.unflatten(2, {heads, rows.size(2) / heads});
    return time == 1 ? split.permute({0, 2, 1, 3}) : split.permute({1, 2, 0, 3});
  }
  Heads tensors(const at::Tensor& packed) const {
    const std::vector<at::Tensor> parts = packed.chunk(3, 2);
    return {turned(parts[0]), turned(parts[1]), turned(parts[2])};
  }
};

struct PackedAttention : torch::autograd::Function<PackedAttention> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& packed, const std::optional<at::Tensor>& mask,
                            const std::optional<at::Tensor>& kept, const Packing& packing, const AttentionTerms& terms,
                            CpuPath path) {
    const Attention attention =
        packing.attention(packed, mask.value_or(at::Tensor()), kept.value_or(at::Tensor()), terms, path);
    const AttentionShape& s = attention.shape;
    const at::Tensor normalization = at::empty({s.batch, s.heads, s.queries, 2}, packed.options().dtype(at::kFloat));
    const at::Tensor y = packing.output(packed);
    attention.forward(packing.rows(y, 1, 0), normalization);
    context->save_for_backward({packed, attention.mask, attention.kept, normalization});
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
    const Attention attention = packing.attention(saved[0], saved[1], saved[2], terms, kept_path(context));
    const at::Tensor of_y = gradients[0].contiguous();
    variable_list result(6);
    if (c10::GradMode::is_enabled()) {
      result[0] = derivable_gradients(attention, packing.tensors(saved[0]), {saved[0]}, packing.turned(of_y))[0];
      return result;
    }
    result[0] = at::empty_like(saved[0]);
    attention.backward(packing.parts(result[0]), saved[3], packing.rows(of_y, 1, 0));
    return result;
  }
};

bool mask_fits(const at::Tensor& mask, const AttentionShape& sizes) {
  if (!mask.defined()) return true;
  const bool is_known = mask.scalar_type() == at::kBool || mask.is_floating_point();
  if (!is_known || mask.requires_grad() || !is_plain_cpu(mask) || mask.dim() > 4 || mask.dim() < 2) return false;
  const std::array<int64_t, 4> expected = {sizes.batch, sizes.heads, sizes.queries, sizes.keys};
  for (int64_t i = 1; i <= mask.dim(); ++i) {
    if (mask.size(-i) != 1 && mask.size(-i) != expected[static_cast<size_t>(4 - i)]) return false;
  }
  return true;
}

bool sizes_fit(const AttentionShape& sizes, const AttentionTerms& terms) {
  constexpr int64_t kFewestQueries = 8, kFewestKeys = 16;  // for fewer, ATen is as fast
  const bool has_one_key = sizes.keys == 1;  // for the sake of gradients: exactly 0, where ATen's depend on strides
  const bool is_worth_it = sizes.queries >= kFewestQueries && sizes.keys >= kFewestKeys;
  return best_cpu_path() != CpuPath::kGeneric && sizes.batch > 0 && sizes.queries > 0 && (is_worth_it || has_one_key) &&
         sizes.keys <= kMostAttentionKeys && sizes.features > 0 && sizes.features <= kMostAttentionFeatures &&
         terms.dropout >= 0 && terms.dropout < 1 && !(terms.is_causal && terms.mask.defined()) &&
         mask_fits(terms.mask, sizes);
}

}  // namespace

bool supports_short_attention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                              const AttentionTerms& terms) {
  if (query.dim() != 4 || key.dim() != 4 || value.dim() != 4) return false;
  if (!is_plain_cpu(query) || !is_plain_cpu(key) || !is_plain_cpu(value) || !stored_type(query)) return false;
  const bool alike = query.scalar_type() == key.scalar_type() && key.scalar_type() == value.scalar_type() &&
                     key.sizes() == value.sizes() && query.size(0) == key.size(0) && query.size(3) == key.size(3) &&
                     key.size(1) > 0 && query.size(1) % key.size(1) == 0;
  return alike && sizes_fit(sizes_of(query, key), terms);
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
    at::Tensor y = output_for(q);
    attention_of({q, k, v}, mask, kept, terms, path).forward(rows_of(y), {});
    return y;
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
  if (!sizes_fit(packing.sizes(packed), terms)) return std::nullopt;
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
  at::Tensor y = packing.output(packed);
  packing.attention(packed, mask, kept, rest, path).forward(packing.rows(y, 1, 0), {});
  return y;
}

}  // namespace trainrun::kernels
