#include "registry/layers/key_value_cache.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>

#include <algorithm>

#include "registry/layers/scaled_attention.h"

namespace trainrun {
namespace {

using at::Tensor;

/// Adds `next` to the `past` rows that `kept` holds along `dim`; returns all of them.
Tensor appended(Tensor& kept, const Tensor& next, int64_t past, int64_t dim) {
  constexpr int64_t kLeastRoom = 32;
  const int64_t needed = past + next.size(dim);
  if (!kept.defined() || kept.size(dim) < needed) {
    std::vector<int64_t> sizes = next.sizes().vec();
    sizes[static_cast<size_t>(dim)] = needed + std::max(needed / 2, kLeastRoom);
    const Tensor wider = at::empty(sizes, next.options());
    if (past > 0) wider.narrow(dim, 0, past).copy_(kept.narrow(dim, 0, past));
    kept = wider;
  }
  kept.narrow(dim, past, next.size(dim)).copy_(next);
  return kept.narrow(dim, 0, needed);
}

/// [N or 1, 1, T, S] bool: which of the keys `first_key` … each query looks at; undefined: all of them, or, where the
/// queries are as many as the keys, all up to its own. A query always looks at its own key, so that what padding
/// gives is finite.
Tensor looked_at(const NextTokens& next, const DecodingPoint& point, const Tensor& all_seen, int64_t first_key,
                 bool is_windowed) {
  const int64_t length = next.query.size(2);
  const bool is_plain = length == 1 || point.past == 0;
  if (is_plain && !is_windowed && !point.padding.defined() && !all_seen.defined()) return {};
  const auto options = next.query.options().dtype(at::kLong);
  const Tensor keys = at::arange(first_key, point.past + length, options).view({1, 1, 1, -1});
  const Tensor queries = at::arange(point.past, point.past + length, options).view({1, 1, -1, 1});
  Tensor mask = keys <= queries;
  if (next.sliding_window) mask = mask.logical_and(keys > queries - *next.sliding_window);
  if (point.padding.defined()) mask = mask.logical_and(keys >= point.padding.view({-1, 1, 1, 1}));
  if (all_seen.defined()) {
    mask = mask.logical_and(all_seen.narrow(1, first_key, keys.size(3)).unsqueeze(1).unsqueeze(1));
  }
  return mask.logical_or(keys == queries);
}

}  // namespace

Tensor attend_further(const NextTokens& next, const DecodingPoint& point, Tensors& memory) {
  memory.resize(3);
  Tensor keys = appended(memory[0], next.key, point.past, 2);
  Tensor values = appended(memory[1], next.value, point.past, 2);
  const Tensor seen = next.seen.defined() ? appended(memory[2], next.seen, point.past, 1) : Tensor();
  const int64_t length = next.query.size(2);
  const int64_t num_keys = point.past + length;
  int64_t first_key = 0;
  if (length == 1 && next.sliding_window) first_key = std::max<int64_t>(num_keys - *next.sliding_window, 0);
  keys = keys.narrow(2, first_key, num_keys - first_key);
  values = values.narrow(2, first_key, num_keys - first_key);
  const bool is_windowed = length > 1 && next.sliding_window && *next.sliding_window < num_keys;
  const Tensor mask = looked_at(next, point, seen, first_key, is_windowed);
  if (length == 1) {  // the queries that share a head of keys stand side by side, so that no key is copied
    const int64_t times = next.query.size(1) / next.key.size(1);
    const Tensor query = next.query.reshape({next.query.size(0), keys.size(1), times, -1});
    return scaled_attention(query, keys, values, {.mask = mask, .scale = next.scale}).reshape(next.query.sizes());
  }
  return scaled_attention(next.query, keys, values, {.mask = mask, .is_causal = !mask.defined(), .scale = next.scale});
}

}  // namespace trainrun
