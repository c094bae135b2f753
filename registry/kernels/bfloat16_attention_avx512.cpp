#if defined(__x86_64__)

#include "registry/kernels/attention_rows.h"
#include "registry/kernels/bfloat16_attention.h"

// NOLINTBEGIN(modernize-avoid-c-arrays, readability-identifier-naming): see README.md

// A product reads pairs of numbers that follow each other in depth, as words of 32 bits. Matrices of such words are kept
// as if they were floats, which are only moved. Keys and values are copied once a head into the pairs that the products
// read in order: of two features for scores, of two keys for sums over keys.

namespace trainrun::kernels {
namespace {

struct PairTerms {
  TRAINRUN_INLINE static Floats added(Floats a, Floats b, Floats sum) {
    return _mm512_dpbf16_ps(sum, reinterpret_cast<__m512bh>(a), reinterpret_cast<__m512bh>(b));
  }
};

constexpr int64_t pairs_of(int64_t count) { return (count + 1) / 2; }

/// A head's numbers in scratch memory.
struct PairCopies {
  Matrix rows;                          // [S][D / 2]: of keys or values, on their way into one of those below
  Matrix keys, values;                  // [S / 2][D]
  Matrix keys_of, values_of;            // [D / 2][S]
  Matrix query, grad_y;                 // [block][D / 2]
  Matrix query_pairs, grad_y_pairs;     // [block / 2][D]
  Matrix weights, gradient;             // [block][S], float32
  Matrix narrow;                        // [block][S / 2]: weights, or their scores' gradients
  Matrix weight_pairs, gradient_pairs;  // [block / 2][S]
  Matrix result;                        // [block][D], float32
  Matrix grad_key, grad_value;          // [S][D], float32

  PairCopies(const AttentionShape& s, bool backward, Scratch& scratch) {
    const int64_t pairs = pairs_of(s.features), of_features = rounded_up(pairs, kLanes);
    rows = scratch.matrix(s.keys, pairs);
    values = scratch.matrix(pairs_of(s.keys), s.features);
    keys_of = scratch.matrix(of_features, s.keys);
    query = scratch.matrix(kBlock, pairs);
    weights = scratch.matrix(kBlock, s.keys);
    narrow = scratch.matrix(kBlock, pairs_of(s.keys));
    result = scratch.matrix(kBlock, s.features);
    if (!backward) return;
    keys = scratch.matrix(pairs_of(s.keys), s.features);
    values_of = scratch.matrix(of_features, s.keys);
    grad_y = scratch.matrix(kBlock, pairs);
    query_pairs = scratch.matrix(kBlock / 2, s.features);
    grad_y_pairs = scratch.matrix(kBlock / 2, s.features);
    gradient = scratch.matrix(kBlock, s.keys);
    weight_pairs = scratch.matrix(kBlock / 2, s.keys);
    gradient_pairs = scratch.matrix(kBlock / 2, s.keys);
    grad_key = scratch.matrix(s.keys, s.features);
    grad_value = scratch.matrix(s.keys, s.features);
  }
};

// --- copies

/// Rows as they lie in memory: pairs of features, the last one with a zero where their number is odd.
void take_rows(const Bfloat16* from, int64_t step, int64_t count, int64_t features, const Matrix& to) {
  constexpr int64_t kAhead = 8, kNumbers = int64_t{2} * kLanes;  // rows lie far apart: the processor foresees none
  for (int64_t i = 0; i < count; ++i) {
    const Bfloat16* const row = from + i * step;
    float* const copy = to.row(i);
    for (int64_t j = 0; j < features; j += kNumbers) {
      __builtin_prefetch(row + kAhead * step + j);
      const int64_t rest = lesser(features - j, kNumbers);
      const auto mask = static_cast<__mmask32>((uint64_t{1} << static_cast<unsigned>(rest)) - 1);
      store_all(copy + j / 2, reinterpret_cast<Floats>(_mm512_maskz_loadu_epi16(mask, row + j)));
    }
  }
}

/// to[pair][feature], of rows 2 * pair and 2 * pair + 1, from those that `take_rows` took; a row of zeros where their
/// number is odd, and zeros up to a whole panel.
void pair_rows(const Matrix& from, int64_t count, int64_t features, const Matrix& to) {
  const int64_t padded = rounded_up(features, kPanel);
  for (int64_t i = 0; i < count; i += 2) {
    const auto* const even = reinterpret_cast<const Bfloat16*>(from.row(i));
    const auto* const odd = reinterpret_cast<const Bfloat16*>(from.row(i + 1));
    for (int64_t j = 0; j < padded; j += kLanes) {
      const __mmask16 mask = lowest(features - j);
      const __m512i low = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(mask, even + j));
      const __mmask16 odd_mask = i + 1 < count ? mask : __mmask16{0};
      const __m512i high = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(odd_mask, odd + j));
      store_all(to.row(i / 2) + j, reinterpret_cast<Floats>(_mm512_or_si512(low, _mm512_slli_epi32(high, 16))));
    }
  }
}

/// Numbers of a row of float32 in pairs that follow each other.
void narrow_row(const float* from, int64_t count, float* to) {
  for (int64_t j = 0; j < count; j += int64_t{2} * kLanes) {
    const __m512bh both = _mm512_cvtne2ps_pbh(load_all(from + j + kLanes), load_all(from + j));
    store_all(to + j / 2, reinterpret_cast<Floats>(both));
  }
}

/// to[pair][column], of rows 2 * pair and 2 * pair + 1 of float32; of zeros where the number of rows is odd.
void narrow_pairs(const Matrix& from, int64_t count, int64_t columns, const Matrix& to) {
  for (int64_t i = 0; i < count; i += 2) {
    const float *const even = from.row(i), *const odd = from.row(i + 1);
    for (int64_t j = 0; j < columns; j += kLanes) {
      const auto low = reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(load_all(even + j)));
      const auto high = i + 1 < count ? reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(load_all(odd + j))) : __m256i{};
      store_all(to.row(i / 2) + j,
                reinterpret_cast<Floats>(
                    _mm512_or_si512(_mm512_cvtepu16_epi32(low), _mm512_slli_epi32(_mm512_cvtepu16_epi32(high), 16))));
    }
  }
}

Factors rows_of(const Matrix& pairs) { return {pairs.at, pairs.width, 1}; }
Factors columns_of(const Matrix& pairs) { return {pairs.at, 1, pairs.width}; }

// --- passes

void attend(const AttentionShape& s, const AttentionTensors& t, const Block& b, const PairCopies& copies) {
  take_rows(b.head.of<const Bfloat16>(t.query) + b.first * t.query.row_step, t.query.row_step, b.count, s.features,
            copies.query);
  multiply<PairTerms>(b.count, rows_of(copies.query), copies.keys_of, pairs_of(s.features), b.columns, copies.weights,
                      false);
  float sums[kBlock];
  weigh_block(s, t, b, copies.weights, sums);
  for (int64_t i = 0; i < b.count; ++i) narrow_row(copies.weights.row(i), b.columns, copies.narrow.row(i));
  multiply<PairTerms>(b.count, rows_of(copies.narrow), copies.values, pairs_of(b.columns), s.features, copies.result,
                      false);
  put_result<Bfloat16>(s, t, b, copies.result, sums);
}

/// The gradient of the query, which is written, and those of keys and values, which are added to.
void attend_back(const AttentionShape& s, const AttentionTensors& t, const Block& b, const PairCopies& copies) {
  const auto taken = [&](const AttentionRows& rows, const Matrix& to, const Matrix& pairs) {
    take_rows(b.head.of<const Bfloat16>(rows) + b.first * rows.row_step, rows.row_step, b.count, s.features, to);
    pair_rows(to, b.count, s.features, pairs);
  };
  taken(t.query, copies.query, copies.query_pairs);
  taken(t.grad_y, copies.grad_y, copies.grad_y_pairs);
  const int64_t features = pairs_of(s.features), queries = pairs_of(b.count);
  multiply<PairTerms>(b.count, rows_of(copies.query), copies.keys_of, features, b.columns, copies.weights, false);
  multiply<PairTerms>(b.count, rows_of(copies.grad_y), copies.values_of, features, b.columns, copies.gradient, false);
  weigh_block_again(s, t, b, copies.weights, copies.gradient);
  narrow_pairs(copies.weights, b.count, b.columns, copies.weight_pairs);
  narrow_pairs(copies.gradient, b.count, b.columns, copies.gradient_pairs);
  for (int64_t i = 0; i < b.count; ++i) narrow_row(copies.gradient.row(i), b.columns, copies.narrow.row(i));
  multiply<PairTerms>(b.columns, columns_of(copies.weight_pairs), copies.grad_y_pairs, queries, s.features,
                      copies.grad_value, true);
  multiply<PairTerms>(b.columns, columns_of(copies.gradient_pairs), copies.query_pairs, queries, s.features,
                      copies.grad_key, true);
  multiply<PairTerms>(b.count, rows_of(copies.narrow), copies.keys, pairs_of(b.columns), s.features, copies.result,
                      false);
  put_block<Bfloat16>(s, b, copies.result, t.grad_query);
}

void take_head(const AttentionShape& s, const AttentionRows& from, Head head, const PairCopies& copies) {
  take_rows(head.of<const Bfloat16>(from), from.row_step, s.keys, s.features, copies.rows);
}

}  // namespace

int64_t attention_scratch_bf16(const AttentionShape& shape, bool backward) {
  Scratch scratch(nullptr);
  const PairCopies copies(shape, backward, scratch);
  return scratch.used();
}

void attention_forward_bf16(const AttentionShape& shape, const AttentionTensors& tensors, int64_t begin, int64_t end,
                            float* scratch) {
  Scratch memory(scratch);
  const PairCopies copies(shape, false, memory);
  for (int64_t i = begin; i < end; ++i) {
    const Head head = head_of_keys(shape, i);
    take_head(shape, tensors.key, head, copies);
    transpose_rows(copies.rows, shape.keys, pairs_of(shape.features), copies.keys_of);
    take_head(shape, tensors.value, head, copies);
    pair_rows(copies.rows, shape.keys, shape.features, copies.values);
    for_blocks_of(shape, head, [&](const Block& block) { attend(shape, tensors, block, copies); });
  }
}

void attention_backward_bf16(const AttentionShape& shape, const AttentionTensors& tensors, int64_t begin, int64_t end,
                             float* scratch) {
  Scratch memory(scratch);
  const PairCopies copies(shape, true, memory);
  for (int64_t i = begin; i < end; ++i) {
    const Head head = head_of_keys(shape, i);
    take_head(shape, tensors.value, head, copies);
    transpose_rows(copies.rows, shape.keys, pairs_of(shape.features), copies.values_of);
    take_head(shape, tensors.key, head, copies);
    transpose_rows(copies.rows, shape.keys, pairs_of(shape.features), copies.keys_of);
    pair_rows(copies.rows, shape.keys, shape.features, copies.keys);
    clear(copies.grad_key, shape.keys);
    clear(copies.grad_value, shape.keys);
    for_blocks_of(shape, head, [&](const Block& block) { attend_back(shape, tensors, block, copies); });
    put_head<Bfloat16>(shape, head, copies.grad_key, tensors.grad_key);
    put_head<Bfloat16>(shape, head, copies.grad_value, tensors.grad_value);
  }
}

}  // namespace trainrun::kernels
// NOLINTEND(modernize-avoid-c-arrays, readability-identifier-naming)

#endif
