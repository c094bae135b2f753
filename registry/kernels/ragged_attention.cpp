#include "registry/kernels/ragged_attention.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <optional>
#include <vector>

#include "registry/kernels/attention_pass.h"
#include "registry/kernels/bernoulli.h"
#include "registry/kernels/plain_tensor.h"
#include "registry/kernels/short_attention.h"

namespace trainrun::kernels {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

/// A text's positions among all that are there.
struct Segment {
  int64_t first, count;
};

std::vector<Segment> segments_of(const at::Tensor& rows, int64_t texts, int64_t length) {
  std::vector<Segment> segments(static_cast<size_t>(texts));
  const auto* const numbers = rows.const_data_ptr<int64_t>();
  int64_t at = 0;
  for (int64_t n = 0; n < texts; ++n) {
    const int64_t first = at;
    while (at < rows.numel() && numbers[at] < (n + 1) * length) ++at;
    segments[static_cast<size_t>(n)] = {first, at - first};
  }
  return segments;
}

/// [K]: what is added to the scores of a key.
at::Tensor added_to_keys(const RaggedTexts& texts) {
  constexpr float kNever = std::numeric_limits<float>::lowest() / 2;
  const at::Tensor seen = (texts.mask != 0).contiguous();
  const bool* const marks = seen.const_data_ptr<bool>();
  const auto* const numbers = texts.rows.const_data_ptr<int64_t>();
  at::Tensor added = at::empty({texts.rows.numel()}, at::kFloat);
  std::transform(numbers, numbers + added.numel(), added.mutable_data_ptr<float>(),
                 [&](int64_t number) { return marks[number] ? 0.0F : kNever; });
  return added;
}

/// All attentions of a batch, one for each text.
struct Attentions {
  std::vector<Segment> segments;
  std::vector<Attention> own;
  int64_t heads = 0, key_heads = 0, most_positions = 0;

  /// The same for all: they differ only in how many positions there are.
  AttentionLoops loops() const { return attention_loops(own[0].shape, own[0].path); }

  /// Calls pass(which, begin, end, scratch) for heads [begin, end) of keys of each text.
  template <class Pass>
  void run(bool backward, const Pass& pass) const {
    AttentionShape largest = own[0].shape;
    largest.queries = largest.keys = most_positions;
    const auto texts = static_cast<int64_t>(own.size());
    on_threads(texts * key_heads, loops().scratch(largest, backward), [&](int64_t begin, int64_t end, float* scratch) {
      for (int64_t i = begin; i < end;) {
        const int64_t text = i / key_heads, last = std::min(end, (text + 1) * key_heads);
        pass(static_cast<size_t>(text), i - text * key_heads, last - text * key_heads, scratch);
        i = last;
      }
    });
  }
};

/// The rows of a text in a tensor [1, K, heads * D].
AttentionRows rows_of_text(const at::Tensor& x, const Segment& segment, int64_t features) {
  auto* const begin = static_cast<char*>(const_cast<void*>(x.const_data_ptr()));  // the loops know what to write to
  return {begin + segment.first * x.stride(1) * x.element_size(), 0, features, x.stride(1)};
}

/// Of what a dropout keeps of all weights [N, heads, T, T], those between positions that are there: for each text
/// [heads, L, L], one after the other.
at::Tensor compacted(const at::Tensor& kept, const at::Tensor& rows, const std::vector<Segment>& segments) {
  int64_t number = 0;
  for (const Segment& segment : segments) number += segment.count * segment.count * kept.size(1);
  at::Tensor compact = at::empty({number}, kept.options());
  const auto* const numbers = rows.const_data_ptr<int64_t>();
  const auto* from = kept.const_data_ptr<uint8_t>();
  auto* to = compact.mutable_data_ptr<uint8_t>();
  const int64_t heads = kept.size(1), length = kept.size(2);
  for (size_t n = 0; n < segments.size(); ++n) {
    const int64_t* const own = numbers + segments[n].first;
    const int64_t count = segments[n].count, begin = static_cast<int64_t>(n) * length;
    const bool are_first = own[count - 1] - begin == count - 1;
    for (int64_t head = 0; head < heads; ++head, from += length * length) {
      for (int64_t i = 0; i < count; ++i, to += count) {
        const uint8_t* const row = from + (own[i] - begin) * length;
        if (are_first) {
          std::memcpy(to, row, static_cast<size_t>(count));
        } else {
          std::transform(own, own + count, to, [&](int64_t number_of_key) { return row[number_of_key - begin]; });
        }
      }
    }
  }
  return compact;
}

/// `added`: of keys. `kept`: as `compacted` gives it, or undefined.
Attentions attentions_of(const variable_list& parts, int64_t heads, const std::vector<Segment>& segments,
                         const at::Tensor& added, const at::Tensor& kept, const AttentionTerms& terms, CpuPath path) {
  Attentions all;
  all.segments = segments;
  const int64_t features = parts[0].size(2) / heads;
  all.heads = heads;
  all.key_heads = parts[1].size(2) / features;
  int64_t begin = 0;
  for (const Segment& segment : segments) {
    all.most_positions = std::max(all.most_positions, segment.count);
    AttentionShape shape{};
    shape.batch = 1;
    shape.heads = heads;
    shape.key_heads = all.key_heads;
    shape.queries = shape.keys = segment.count;
    shape.features = features;
    shape.is_bfloat16 = parts[0].scalar_type() == at::kBFloat16;
    Attention own{with_terms(shape, terms),
                  rows_of_text(parts[0], segment, features),
                  rows_of_text(parts[1], segment, features),
                  rows_of_text(parts[2], segment, features),
                  {},
                  {},
                  path};
    const at::Tensor of_keys = added.narrow(0, segment.first, segment.count);
    const auto* const numbers = of_keys.const_data_ptr<float>();
    const bool are_all_seen = std::all_of(numbers, numbers + segment.count, [](float x) { return x == 0; });
    if (!are_all_seen) own.mask = of_keys.view({1, 1, 1, segment.count});
    if (kept.defined()) {
      const int64_t number = heads * segment.count * segment.count;
      own.kept = kept.narrow(0, begin, number).view({1, heads, segment.count, segment.count});
      begin += number;
    }
    all.own.push_back(std::move(own));
  }
  return all;
}

/// A text's part of the normalization [heads * K, 2].
at::Tensor part_of(const at::Tensor& normalization, const Segment& segment, int64_t heads) {
  return normalization.defined() ? normalization.narrow(0, heads * segment.first, heads * segment.count) : at::Tensor();
}

at::Tensor forward_of_texts(const Attentions& all, const at::Tensor& query, const at::Tensor& normalization) {
  at::Tensor y = at::empty(query.sizes(), query.options().requires_grad(false));
  std::vector<AttentionTensors> tensors;
  for (size_t n = 0; n < all.own.size(); ++n) {
    const Segment& segment = all.segments[n];
    tensors.push_back(all.own[n].forward_tensors(rows_of_text(y, segment, all.own[n].shape.features),
                                                 part_of(normalization, segment, all.heads)));
  }
  const AttentionLoops loops = all.loops();
  all.run(false, [&](size_t n, int64_t begin, int64_t end, float* scratch) {
    loops.forward(all.own[n].shape, tensors[n], begin, end, scratch);
  });
  return y;
}

variable_list backward_of_texts(const Attentions& all, const variable_list& parts, const at::Tensor& normalization,
                                const at::Tensor& of_y) {
  const at::Tensor grad_y = of_y.contiguous();
  variable_list made;
  for (size_t i = 0; i < 3; ++i) made.push_back(at::empty(parts[i].sizes(), parts[i].options().requires_grad(false)));
  std::vector<AttentionTensors> tensors;
  for (size_t n = 0; n < all.own.size(); ++n) {
    const Segment& segment = all.segments[n];
    const int64_t features = all.own[n].shape.features;
    tensors.push_back(all.own[n].backward_tensors(
        {rows_of_text(made[0], segment, features), rows_of_text(made[1], segment, features),
         rows_of_text(made[2], segment, features)},
        part_of(normalization, segment, all.heads), rows_of_text(grad_y, segment, features)));
  }
  const AttentionLoops loops = all.loops();
  all.run(true, [&](size_t n, int64_t begin, int64_t end, float* scratch) {
    loops.backward(all.own[n].shape, tensors[n], begin, end, scratch);
  });
  return made;
}

/// The same by ATen's operations, text by text.
variable_list derivable_backward(const Attentions& all, const variable_list& parts, const at::Tensor& of_y) {
  variable_list other, made(3);
  for (const at::Tensor& part : parts) other.push_back(part.view_as(part));
  for (size_t n = 0; n < all.own.size(); ++n) {
    const AttentionShape& shape = all.own[n].shape;
    const auto heads_of = [&](const at::Tensor& x) {
      return x.narrow(1, all.segments[n].first, all.segments[n].count)
          .unflatten(2, {x.size(2) / shape.features, shape.features})
          .transpose(1, 2);
    };
    const Heads heads{heads_of(other[0]), heads_of(other[1]), heads_of(other[2])};
    const variable_list own = derivable_gradients(all.own[n], heads, other, heads_of(of_y));
    for (size_t i = 0; i < 3; ++i) made[i] = made[i].defined() ? made[i] + own[i] : own[i];
  }
  return made;
}

struct RaggedAttention : torch::autograd::Function<RaggedAttention> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& query, const at::Tensor& key,
                            const at::Tensor& value, const at::Tensor& added, const std::optional<at::Tensor>& kept,
                            const std::vector<Segment>& segments, int64_t heads, const AttentionTerms& terms,
                            CpuPath path) {
    const Attentions all =
        attentions_of({query, key, value}, heads, segments, added, kept.value_or(at::Tensor()), terms, path);
    const at::Tensor normalization = at::empty({heads * query.size(1), 2}, query.options().dtype(at::kFloat));
    const at::Tensor y = forward_of_texts(all, query, normalization);
    context->save_for_backward({query, key, value, added, kept.value_or(at::Tensor()), normalization});
    std::vector<int64_t> counts;
    for (const Segment& segment : segments) counts.push_back(segment.count);
    auto& data = context->saved_data;
    data["counts"] = counts;
    data["heads"] = heads;
    data["dropout"] = terms.dropout;
    data["scale"] = terms.scale;
    data["path"] = static_cast<int64_t>(path);
    return y;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    auto& data = context->saved_data;
    std::vector<Segment> segments;
    for (const int64_t count : data["counts"].toIntVector()) {
      segments.push_back({segments.empty() ? 0 : segments.back().first + segments.back().count, count});
    }
    const AttentionTerms terms{{}, data["dropout"].toDouble(), false, data["scale"].toOptional<double>()};
    const variable_list parts = {saved[0], saved[1], saved[2]};
    const Attentions all = attentions_of(parts, data["heads"].toInt(), segments, saved[3], saved[4], terms,
                                         static_cast<CpuPath>(data["path"].toInt()));
    variable_list made = c10::GradMode::is_enabled() ? derivable_backward(all, parts, gradients[0])
                                                     : backward_of_texts(all, parts, saved[5], gradients[0]);
    made.resize(9);
    return made;
  }
};

}  // namespace

bool supports_ragged_attention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value, int64_t heads,
                               const RaggedTexts& texts, const AttentionTerms& terms) {
  const at::Tensor& mask = texts.mask;
  const bool fits = query.dim() == 3 && key.dim() == 3 && key.sizes() == value.sizes() && query.size(0) == 1 &&
                    query.size(1) == key.size(1) && query.size(1) == texts.rows.numel() && is_plain_cpu(texts.rows) &&
                    is_plain_cpu(mask) && mask.dim() == 2 && c10::isIntegralType(mask.scalar_type(), false) &&
                    !terms.is_causal && !terms.mask.defined();
  if (!fits) return false;
  // As for whole texts: the sizes of these decide, so that it does not depend on the padding which kernel computes.
  const auto whole = [&](const at::Tensor& x) {
    const int64_t own_heads = x.size(2) / (query.size(2) / heads);
    return x.narrow(1, 0, 1).expand({mask.size(0), mask.size(1), -1}).unflatten(2, {own_heads, -1}).transpose(1, 2);
  };
  if (!supports_short_attention(whole(query), whole(key), whole(value), terms)) return false;
  const auto segments = segments_of(texts.rows, mask.size(0), mask.size(1));
  return segments.back().first + segments.back().count == query.size(1) &&
         std::all_of(segments.begin(), segments.end(), [](const Segment& segment) { return segment.count > 0; });
}

at::Tensor ragged_attention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value, int64_t heads,
                            const RaggedTexts& texts, const AttentionTerms& terms, CpuPath path) {
  const at::ScalarType type = *stored_type(query);
  const auto in_rows = [&](const at::Tensor& x) {
    const at::Tensor stored = x.to(type);
    return stored.stride(2) == 1 ? stored : stored.contiguous();
  };
  const at::Tensor q = in_rows(query), k = in_rows(key), v = in_rows(value);
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::DispatchKey::AutocastCPU);
  const int64_t number = texts.mask.size(0), length = texts.mask.size(1);
  const std::vector<Segment> segments = segments_of(texts.rows, number, length);
  const at::Tensor added = added_to_keys(texts);
  at::Tensor kept;
  if (terms.dropout > 0) {  // as for whole texts
    at::Tensor all = at::empty({number, heads, length, length}, q.options().dtype(at::kByte).requires_grad(false));
    bernoulli(all, 1 - terms.dropout, std::nullopt);
    kept = compacted(all, texts.rows, segments);
  }
  const bool is_trained = q.requires_grad() || k.requires_grad() || v.requires_grad();
  if (c10::GradMode::is_enabled() && is_trained) {
    return RaggedAttention::apply(q, k, v, added, optional_of(kept), segments, heads, terms, path);
  }
  return forward_of_texts(attentions_of({q, k, v}, heads, segments, added, kept, terms, path), q, {});
}

}  // namespace trainrun::kernels
