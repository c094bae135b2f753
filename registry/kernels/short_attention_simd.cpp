#include "registry/kernels/short_attention_simd.h"

#include "registry/kernels/attention_rows.h"

// NOLINTBEGIN(modernize-avoid-c-arrays, readability-identifier-naming, readability-redundant-parentheses): see README.md

// A head's keys and values are copied once, as float32, into rows and columns that products read in order. Queries go by
// blocks of a few, whose scores with all keys stay in the caches.

namespace trainrun::kernels::TRAINRUN_CPU_PATH {
namespace {

/// A head's numbers in scratch memory.
struct Copies {
  Matrix keys, values;        // [S][D]
  Matrix keys_of, values_of;  // [D][S]
  Matrix query, grad_y;       // [block][D]
  Matrix weights, gradient;   // [block][S]
  Matrix result;              // [block][D]
  Matrix grad_key, grad_value;

  Copies(const AttentionShape& s, bool backward, Scratch& scratch)
      : values(scratch.matrix(s.keys, s.features)),
        keys_of(scratch.matrix(rounded_up(s.features, kLanes), s.keys)),
        query(scratch.matrix(kBlock, s.features)),
        weights(scratch.matrix(kBlock, s.keys)),
        result(scratch.matrix(kBlock, s.features)) {
    if (!backward) return;
    keys = scratch.matrix(s.keys, s.features);
    values_of = scratch.matrix(rounded_up(s.features, kLanes), s.keys);
    grad_y = scratch.matrix(kBlock, s.features);
    gradient = scratch.matrix(kBlock, s.keys);
    grad_key = scratch.matrix(s.keys, s.features);
    grad_value = scratch.matrix(s.keys, s.features);
  }
};

// --- copies

template <class T>
void take_rows(const T* from, int64_t step, int64_t count, int64_t features, const Matrix& to) {
  constexpr int64_t kAhead = 8, kOfLine = 64 / sizeof(T);  // rows lie far apart: the processor foresees none
  const int64_t whole = features / kLanes * kLanes, padded = rounded_up(features, kPanel);
  for (int64_t i = 0; i < count; ++i) {
    const T* const row = from + i * step;
    for (int64_t j = 0; j < features; j += kOfLine) __builtin_prefetch(row + kAhead * step + j);
    float* const copy = to.row(i);
    int64_t j = 0;
    for (; j < whole; j += kLanes) store_all(copy + j, get<true>(row + j, kLanes));
    for (; j < padded; j += kLanes) store_all(copy + j, j < features ? get<false>(row + j, features - j) : Floats{});
  }
}

// --- passes

template <class T>
void attend(const AttentionShape& s, const AttentionTensors& t, const Block& block, const Copies& copies) {
  const Block& b = block;
  take_rows(b.head.of<const T>(t.query) + b.first * t.query.row_step, t.query.row_step, b.count, s.features,
            copies.query);
  multiply(b.count, {copies.query.at, copies.query.width, 1}, copies.keys_of, s.features, b.columns, copies.weights,
           false);
  float sums[kBlock];
  weigh_block(s, t, b, copies.weights, sums);
  multiply(b.count, {copies.weights.at, copies.weights.width, 1}, copies.values, b.columns, s.features, copies.result,
           false);
  put_result<T>(s, t, b, copies.result, sums);
}

/// The gradient of the query, which is written, and those of keys and values, which are added to.
template <class T>
void attend_back(const AttentionShape& s, const AttentionTensors& t, const Block& block, const Copies& copies) {
  const Block& b = block;
  const auto taken = [&](const AttentionRows& rows, const Matrix& to) {
    take_rows(b.head.of<const T>(rows) + b.first * rows.row_step, rows.row_step, b.count, s.features, to);
  };
  taken(t.query, copies.query);
  taken(t.grad_y, copies.grad_y);
  const Factors query{copies.query.at, copies.query.width, 1}, grad_y{copies.grad_y.at, copies.grad_y.width, 1};
  multiply(b.count, query, copies.keys_of, s.features, b.columns, copies.weights, false);
  multiply(b.count, grad_y, copies.values_of, s.features, b.columns, copies.gradient, false);
  weigh_block_again(s, t, b, copies.weights, copies.gradient);
  const Factors weights{copies.weights.at, 1, copies.weights.width},
      gradient{copies.gradient.at, 1, copies.gradient.width};
  multiply(b.columns, weights, copies.grad_y, b.count, s.features, copies.grad_value, true);
  multiply(b.columns, gradient, copies.query, b.count, s.features, copies.grad_key, true);
  multiply(b.count, {copies.gradient.at, copies.gradient.width, 1}, copies.keys, b.columns, s.features, copies.result,
           false);
  put_block<T>(s, b, copies.result, t.grad_query);
}

template <class T>
void forward_of(const AttentionShape& s, const AttentionTensors& t, Head of_keys, const Copies& copies) {
  take_rows(of_keys.of<const T>(t.key), t.key.row_step, s.keys, s.features, copies.values);
  transpose_rows(copies.values, s.keys, s.features, copies.keys_of);
  take_rows(of_keys.of<const T>(t.value), t.value.row_step, s.keys, s.features, copies.values);
  for_blocks_of(s, of_keys, [&](const Block& block) { attend<T>(s, t, block, copies); });
}

template <class T>
void backward_of(const AttentionShape& s, const AttentionTensors& t, Head of_keys, const Copies& copies) {
  take_rows(of_keys.of<const T>(t.value), t.value.row_step, s.keys, s.features, copies.values);
  transpose_rows(copies.values, s.keys, s.features, copies.values_of);
  take_rows(of_keys.of<const T>(t.key), t.key.row_step, s.keys, s.features, copies.keys);
  transpose_rows(copies.keys, s.keys, s.features, copies.keys_of);
  clear(copies.grad_key, s.keys);
  clear(copies.grad_value, s.keys);
  for_blocks_of(s, of_keys, [&](const Block& block) { attend_back<T>(s, t, block, copies); });
  put_head<T>(s, of_keys, copies.grad_key, t.grad_key);
  put_head<T>(s, of_keys, copies.grad_value, t.grad_value);
}

template <class Call>
void for_heads(const AttentionShape& s, int64_t begin, int64_t end, const Call& call) {
  for (int64_t i = begin; i < end; ++i) {
    with_type(s.is_bfloat16, [&](auto type) { call(head_of_keys(s, i), type); });
  }
}

}  // namespace

int64_t attention_scratch(const AttentionShape& shape, bool backward) {
  Scratch scratch(nullptr);
  const Copies copies(shape, backward, scratch);
  return scratch.used();
}

void attention_forward(const AttentionShape& shape, const AttentionTensors& tensors, int64_t begin, int64_t end,
                       float* scratch) {
  Scratch memory(scratch);
  const Copies copies(shape, false, memory);
  for_heads(shape, begin, end, [&](Head head, auto type) { forward_of<decltype(type)>(shape, tensors, head, copies); });
}

void attention_backward(const AttentionShape& shape, const AttentionTensors& tensors, int64_t begin, int64_t end,
                        float* scratch) {
  Scratch memory(scratch);
  const Copies copies(shape, true, memory);
  for_heads(shape, begin, end,
            [&](Head head, auto type) { backward_of<decltype(type)>(shape, tensors, head, copies); });
}

}  // namespace trainrun::kernels::TRAINRUN_CPU_PATH
// NOLINTEND(modernize-avoid-c-arrays, readability-identifier-naming, readability-redundant-parentheses)
