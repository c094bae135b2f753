#include "registry/kernels/short_attention_simd.h"

#include "registry/kernels/row_math.h"
#include "registry/kernels/small_products.h"
#include "registry/kernels/stored_floats.h"
#include "registry/kernels/vectors.h"

// NOLINTBEGIN(modernize-avoid-c-arrays, readability-identifier-naming, readability-redundant-parentheses): see README.md

// A head's keys and values are copied once, as float32, into rows and columns that products read in order. Queries go by
// blocks of a few, whose scores with all keys stay in the caches.

namespace trainrun::kernels::TRAINRUN_CPU_PATH {
namespace {

constexpr int64_t kBlock = 32;  // queries at a time
constexpr int64_t kWordsOfLine = 16;

/// Rows as products read them: `width` floats from one to the next, zeros after what they hold.
struct Matrix {
  float* at;
  int64_t width;

  float* row(int64_t i) const { return at + i * width; }
};

/// Hands out scratch memory. Rows of a power of two would fall into the same sets of a cache, so they get some more.
class Scratch {
 public:
  /// Null: nothing is handed out, only counted.
  explicit Scratch(float* memory) : memory_(memory) {}

  Matrix matrix(int64_t rows, int64_t columns) {
    const Matrix result{memory_ == nullptr ? nullptr : memory_ + used_, rounded_up(columns, kPanel) + kWordsOfLine};
    used_ += rows * result.width;
    return result;
  }
  int64_t used() const { return used_; }

 private:
  float* memory_;
  int64_t used_ = 0;
};

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

/// Which head of which sample, and its rows in a tensor.
struct Head {
  int64_t sample, head;

  template <class T>
  T* of(const AttentionRows& rows) const {
    return static_cast<T*>(rows.at) + sample * rows.batch_step + head * rows.head_step;
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

template <class T>
void put_rows(const Matrix& from, int64_t count, int64_t features, T* to, int64_t step) {
  const int64_t whole = features / kLanes * kLanes;
  for (int64_t i = 0; i < count; ++i) {
    const float* const row = from.row(i);
    for (int64_t j = 0; j < whole; j += kLanes) put<true>(to + i * step + j, load_all(row + j), kLanes);
    if (whole < features) put<false>(to + i * step + whole, load_all(row + whole), features - whole);
  }
}

/// to[feature][key], from rows in scratch memory; what lies after the last key is never read by a sum.
void transpose_rows(const Matrix& from, int64_t count, int64_t features, const Matrix& to) {
  for (int64_t i = 0; i < count; i += kLanes) {
    const int64_t rows = lesser(kLanes, count - i);
    for (int64_t j = 0; j < features; j += kLanes) {
      Floats square[kLanes];
      for (int64_t k = 0; k < kLanes; ++k) square[k] = k < rows ? load_all(from.row(i + k) + j) : Floats{};
      transpose(square);
      for (int64_t k = 0; k < kLanes; ++k) store_all(to.row(j + k) + i, square[k]);
    }
  }
}

// --- products

/// c (+)= a * b, for `columns` columns, and those up to a whole panel.
void multiply(int64_t rows, Factors a, const Matrix& b, int64_t depth, int64_t columns, const Matrix& c, bool add) {
  for (int64_t j = 0; j < columns; j += kPanel) {
    product_of_panel(rows, a, b.at + j, b.width, depth, c.at + j, c.width, add);
  }
}

// --- weights

/// A row of scores.
struct Row {
  float* scores;
  int64_t seen;         // keys that the query sees, the first ones
  int64_t columns;      // those that are read
  const float* mask;    // or null
  const uint8_t* kept;  // or null
};

/// Some of the row's scores: multiplied, and masked. Those that are not seen are -infinity.
TRAINRUN_INLINE inline Floats scores_at(const Row& row, int64_t j, Floats scale) {
  Floats x = load_all(row.scores + j) * scale;
  if (row.mask != nullptr) x += load(row.mask + j, row.seen - j);
  return j + kLanes <= row.seen ? x : only_first(x, row.seen - j, -__builtin_inff());
}

/// The weights of a row, but for a factor: its sum is returned. `largest` is what was subtracted from the scores.
float weigh(const Row& row, Floats scale, float& largest) {
  Floats most = all_of(-__builtin_inff());
  for (int64_t j = 0; j < row.seen; j += kLanes) {
    const Floats x = scores_at(row, j, scale);
    store_all(row.scores + j, x);
    most = larger(most, x);
  }
  largest = largest_of(most);
  if (largest == -__builtin_inff()) largest = 0;  // no key is seen: all weights are 0
  const Floats subtracted = all_of(largest);
  Floats sum{};
  int64_t j = 0;
  for (; j < row.seen; j += kLanes) {
    const Floats weight = exponential(load_all(row.scores + j) - subtracted);
    store_all(row.scores + j, weight);
    sum += weight;
  }
  for (; j < row.columns; j += kLanes) store_all(row.scores + j, Floats{});
  return sum_of(sum);
}

/// What a dropout leaves of weights: `factor` times those that are kept.
TRAINRUN_INLINE inline Floats kept_of(const Row& row, int64_t j, Floats weights, Floats factor) {
  const Ints kept = load_bytes(row.kept + j, row.seen - j);
  return kept != Ints{} ? weights * factor : Floats{};
}

void drop(const Row& row, float factor) {
  for (int64_t j = 0; j < row.seen; j += kLanes) {
    store_all(row.scores + j, kept_of(row, j, load_all(row.scores + j), all_of(factor)));
  }
}

/// From scores and gradients of the weights, row by row: weights, as a dropout leaves them, and gradients of the scores.
/// Where a query sees a single key, whose weight is 1, the gradient of the score is exactly 0, as a softmax's is.
void weigh_again(const Row& row, const AttentionShape& s, const float* normalization, float* gradient) {
  const Floats scale = all_of(s.scale), kept_scale = all_of(s.kept_scale);
  const Floats largest = all_of(normalization[0]), logarithm = all_of(normalization[1]);
  Floats sum{};
  for (int64_t j = 0; j < row.seen; j += kLanes) {
    const Floats weights = exponential(scores_at(row, j, scale) - largest - logarithm);
    Floats of_weights = load_all(gradient + j);
    if (j + kLanes > row.seen) of_weights = only_first(of_weights, row.seen - j, 0);
    if (row.kept != nullptr) of_weights = kept_of(row, j, of_weights, kept_scale);
    store_all(row.scores + j, weights);
    store_all(gradient + j, of_weights);
    sum = multiplied_sum(weights, of_weights, sum);
  }
  const Floats mean = all_of(sum_of(sum));
  int64_t j = 0;
  for (; j < row.seen; j += kLanes) {
    const Floats weights = load_all(row.scores + j);
    const Floats of_scores = weights * (load_all(gradient + j) - mean) * scale;
    store_all(gradient + j, j + kLanes <= row.seen ? of_scores : only_first(of_scores, row.seen - j, 0));
    if (row.kept != nullptr) store_all(row.scores + j, kept_of(row, j, weights, kept_scale));
  }
  for (; j < row.columns; j += kLanes) {
    store_all(row.scores + j, Floats{});
    store_all(gradient + j, Floats{});
  }
}

/// Some queries of a head.
struct Block {
  Head head;
  int64_t first, count;
  int64_t columns;  // keys that any of them sees

  Block(const AttentionShape& s, Head of, int64_t from)
      : head(of),
        first(from),
        count(lesser(kBlock, s.queries - from)),
        columns(s.is_causal ? lesser(s.keys, from + count) : s.keys) {}

  Row row(const AttentionShape& s, const AttentionTensors& t, int64_t i, const Matrix& scores) const {
    const int64_t query = first + i;
    const int64_t number = (head.sample * s.heads + head.head) * s.queries + query;
    const AttentionMask& m = t.mask;
    return {
        scores.row(i), s.is_causal ? lesser(s.keys, query + 1) : s.keys, rounded_up(columns, kLanes),
        m.at == nullptr ? nullptr : m.at + head.sample * m.batch_step + head.head * m.head_step + query * m.row_step,
        t.kept == nullptr ? nullptr : t.kept + number * s.keys};
  }
  float* normalization(const AttentionShape& s, const AttentionTensors& t) const {
    if (t.normalization == nullptr) return nullptr;
    return t.normalization + ((head.sample * s.heads + head.head) * s.queries + first) * 2;
  }
};

// --- passes

template <class T>
void attend(const AttentionShape& s, const AttentionTensors& t, const Block& block, const Copies& copies) {
  const Block& b = block;
  take_rows(b.head.of<const T>(t.query) + b.first * t.query.row_step, t.query.row_step, b.count, s.features,
            copies.query);
  multiply(b.count, {copies.query.at, copies.query.width, 1}, copies.keys_of, s.features, b.columns, copies.weights,
           false);
  float sums[kBlock];
  float* const normalization = b.normalization(s, t);
  for (int64_t i = 0; i < b.count; ++i) {
    const Row row = b.row(s, t, i, copies.weights);
    float largest = 0;
    sums[i] = weigh(row, all_of(s.scale), largest);
    if (normalization != nullptr) {
      normalization[2 * i] = largest;
      normalization[2 * i + 1] = sums[i] > 0 ? __builtin_logf(sums[i]) : sums[i];
    }
    if (row.kept != nullptr) drop(row, s.kept_scale);
  }
  multiply(b.count, {copies.weights.at, copies.weights.width, 1}, copies.values, b.columns, s.features, copies.result,
           false);
  for (int64_t i = 0; i < b.count; ++i) {
    const Floats factor = all_of(sums[i] == 0 ? 0.0F : 1 / sums[i]);
    float* const row = copies.result.row(i);
    for (int64_t j = 0; j < s.features; j += kLanes) store_all(row + j, load_all(row + j) * factor);
  }
  put_rows(copies.result, b.count, s.features, b.head.of<T>(t.y) + b.first * t.y.row_step, t.y.row_step);
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
  const float* const normalization = b.normalization(s, t);
  for (int64_t i = 0; i < b.count; ++i) {
    weigh_again(b.row(s, t, i, copies.weights), s, normalization + 2 * i, copies.gradient.row(i));
  }
  const Factors weights{copies.weights.at, 1, copies.weights.width},
      gradient{copies.gradient.at, 1, copies.gradient.width};
  multiply(b.columns, weights, copies.grad_y, b.count, s.features, copies.grad_value, true);
  multiply(b.columns, gradient, copies.query, b.count, s.features, copies.grad_key, true);
  multiply(b.count, {copies.gradient.at, copies.gradient.width, 1}, copies.keys, b.columns, s.features, copies.result,
           false);
  put_rows(copies.result, b.count, s.features, b.head.of<T>(t.grad_query) + b.first * t.grad_query.row_step,
           t.grad_query.row_step);
}

/// Calls call(head) for each head of queries that reads a head of keys.
template <class Call>
void for_queries_of(const AttentionShape& s, Head of_keys, const Call& call) {
  const int64_t times = s.heads / s.key_heads;
  for (int64_t i = 0; i < times; ++i) call(Head{of_keys.sample, of_keys.head * times + i});
}

template <class T>
void forward_of(const AttentionShape& s, const AttentionTensors& t, Head of_keys, const Copies& copies) {
  take_rows(of_keys.of<const T>(t.key), t.key.row_step, s.keys, s.features, copies.values);
  transpose_rows(copies.values, s.keys, s.features, copies.keys_of);
  take_rows(of_keys.of<const T>(t.value), t.value.row_step, s.keys, s.features, copies.values);
  for_queries_of(s, of_keys, [&](Head head) {
    for (int64_t first = 0; first < s.queries; first += kBlock) attend<T>(s, t, {s, head, first}, copies);
  });
}

void clear(const Matrix& matrix, int64_t rows) {
  for (int64_t i = 0; i < rows * matrix.width; i += kLanes) store_all(matrix.at + i, Floats{});
}

template <class T>
void backward_of(const AttentionShape& s, const AttentionTensors& t, Head of_keys, const Copies& copies) {
  take_rows(of_keys.of<const T>(t.value), t.value.row_step, s.keys, s.features, copies.values);
  transpose_rows(copies.values, s.keys, s.features, copies.values_of);
  take_rows(of_keys.of<const T>(t.key), t.key.row_step, s.keys, s.features, copies.keys);
  transpose_rows(copies.keys, s.keys, s.features, copies.keys_of);
  clear(copies.grad_key, s.keys);
  clear(copies.grad_value, s.keys);
  for_queries_of(s, of_keys, [&](Head head) {
    for (int64_t first = 0; first < s.queries; first += kBlock) attend_back<T>(s, t, {s, head, first}, copies);
  });
  put_rows(copies.grad_key, s.keys, s.features, of_keys.of<T>(t.grad_key), t.grad_key.row_step);
  put_rows(copies.grad_value, s.keys, s.features, of_keys.of<T>(t.grad_value), t.grad_value.row_step);
}

template <class Call>
void for_heads(const AttentionShape& s, int64_t begin, int64_t end, const Call& call) {
  for (int64_t i = begin; i < end; ++i) {
    const Head head{i / s.key_heads, i % s.key_heads};
    if (s.is_bfloat16) {
      call(head, Bfloat16{});
    } else {
      call(head, float{});
    }
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
