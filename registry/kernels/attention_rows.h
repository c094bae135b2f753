#pragma once

#include "registry/kernels/attention_shape.h"
#include "registry/kernels/row_math.h"
#include "registry/kernels/small_products.h"
#include "registry/kernels/stored_floats.h"
#include "registry/kernels/vectors.h"

// NOLINTBEGIN(modernize-avoid-c-arrays, readability-identifier-naming, readability-redundant-parentheses): see README.md

// What the loops of short attention and of its products of bfloat16 share: heads, their scratch memory, and the rows of
// scores between the products, which are float32. For loops that are compiled for each kind of instructions (see
// README.md): all is in an unnamed namespace.

namespace trainrun::kernels {
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

/// Which head of which sample, and its rows in a tensor.
struct Head {
  int64_t sample, head;

  template <class T>
  T* of(const AttentionRows& rows) const {
    return static_cast<T*>(rows.at) + sample * rows.batch_step + head * rows.head_step;
  }
};

template <class T>
void put_rows(const Matrix& from, int64_t count, int64_t features, T* to, int64_t step) {
  const int64_t whole = features / kLanes * kLanes;
  for (int64_t i = 0; i < count; ++i) {
    const float* const row = from.row(i);
    for (int64_t j = 0; j < whole; j += kLanes) put<true>(to + i * step + j, load_all(row + j), kLanes);
    if (whole < features) put<false>(to + i * step + whole, load_all(row + whole), features - whole);
  }
}

/// to[column][row], of numbers of 32 bits; what lies after the last row is never read by a sum.
void transpose_rows(const Matrix& from, int64_t count, int64_t columns, const Matrix& to) {
  for (int64_t i = 0; i < count; i += kLanes) {
    const int64_t rows = lesser(kLanes, count - i);
    for (int64_t j = 0; j < columns; j += kLanes) {
      Floats square[kLanes];
      for (int64_t k = 0; k < kLanes; ++k) square[k] = k < rows ? load_all(from.row(i + k) + j) : Floats{};
      transpose(square);
      for (int64_t k = 0; k < kLanes; ++k) store_all(to.row(j + k) + i, square[k]);
    }
  }
}

// --- products

/// c (+)= a * b, for `columns` columns, and those up to a whole panel.
template <class Terms = FloatTerms>
void multiply(int64_t rows, Factors a, const Matrix& b, int64_t depth, int64_t columns, const Matrix& c, bool add) {
  for (int64_t j = 0; j < columns; j += kPanel) {
    product_of_panel<Terms>(rows, a, b.at + j, b.width, depth, c.at + j, c.width, add);
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

/// Some of the row's scores: multiplied, and masked, each time with the same rounding. Those that are not seen are
/// -infinity.
TRAINRUN_INLINE inline Floats scores_at(const Row& row, int64_t j, Floats scale) {
  Floats x = load_all(row.scores + j);
  x = row.mask == nullptr ? x * scale : multiplied_sum(x, scale, load(row.mask + j, row.seen - j));
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

/// The weights of all of a block's queries, from their scores, but for a factor: 1 / sums[i].
void weigh_block(const AttentionShape& s, const AttentionTensors& t, const Block& b, const Matrix& weights,
                 float* sums) {
  float* const normalization = b.normalization(s, t);
  for (int64_t i = 0; i < b.count; ++i) {
    const Row row = b.row(s, t, i, weights);
    float largest = 0;
    sums[i] = weigh(row, all_of(s.scale), largest);
    if (normalization != nullptr) {
      normalization[2 * i] = largest;
      normalization[2 * i + 1] = sums[i] > 0 ? __builtin_logf(sums[i]) : sums[i];
    }
    if (row.kept != nullptr) drop(row, s.kept_scale);
  }
}

void weigh_block_again(const AttentionShape& s, const AttentionTensors& t, const Block& b, const Matrix& weights,
                       const Matrix& gradient) {
  const float* const normalization = b.normalization(s, t);
  for (int64_t i = 0; i < b.count; ++i) {
    weigh_again(b.row(s, t, i, weights), s, normalization + 2 * i, gradient.row(i));
  }
}

/// Rows of a block's queries.
template <class T>
void put_block(const AttentionShape& s, const Block& b, const Matrix& from, const AttentionRows& to) {
  put_rows(from, b.count, s.features, b.head.of<T>(to) + b.first * to.row_step, to.row_step);
}

/// What the weights of `weigh_block` gave becomes the output.
template <class T>
void put_result(const AttentionShape& s, const AttentionTensors& t, const Block& b, const Matrix& result,
                const float* sums) {
  for (int64_t i = 0; i < b.count; ++i) {
    const Floats factor = all_of(sums[i] == 0 ? 0.0F : 1 / sums[i]);
    float* const row = result.row(i);
    for (int64_t j = 0; j < s.features; j += kLanes) store_all(row + j, load_all(row + j) * factor);
  }
  put_block<T>(s, b, result, t.y);
}

// --- heads

/// Number i of batch * key_heads.
Head head_of_keys(const AttentionShape& s, int64_t i) { return {i / s.key_heads, i % s.key_heads}; }

/// Rows of all its keys.
template <class T>
void put_head(const AttentionShape& s, Head head, const Matrix& from, const AttentionRows& to) {
  put_rows(from, s.keys, s.features, head.of<T>(to), to.row_step);
}

/// Calls call(block) for all queries that read a head of keys.
template <class Call>
void for_blocks_of(const AttentionShape& s, Head of_keys, const Call& call) {
  const int64_t times = s.heads / s.key_heads;
  for (int64_t i = 0; i < times; ++i) {
    const Head head{of_keys.sample, of_keys.head * times + i};
    for (int64_t first = 0; first < s.queries; first += kBlock) call(Block{s, head, first});
  }
}

void clear(const Matrix& matrix, int64_t rows) {
  for (int64_t i = 0; i < rows * matrix.width; i += kLanes) store_all(matrix.at + i, Floats{});
}

}  // namespace
}  // namespace trainrun::kernels
// NOLINTEND(modernize-avoid-c-arrays, readability-identifier-naming, readability-redundant-parentheses)
