#include "registry/kernels/row_norm_simd.h"

#include "registry/kernels/row_math.h"

// NOLINTBEGIN(modernize-avoid-c-arrays, readability-identifier-naming, readability-redundant-parentheses): see README.md

namespace trainrun::kernels::TRAINRUN_CPU_PATH {
namespace {

template <bool kAll>
struct Whether {
  static constexpr bool value = kAll;
};

/// Calls call(all, j, count) for each vector of a row: `all` says, as a constant, whether it is whole.
template <class Call>
TRAINRUN_INLINE inline void for_vectors(int64_t features, const Call& call) {
  int64_t j = 0;
  for (; j + kLanes <= features; j += kLanes) call(Whether<true>{}, j, int64_t{kLanes});
  if (j < features) call(Whether<false>{}, j, features - j);
}

template <class T>
TRAINRUN_INLINE inline T* row_of(T* rows, int64_t row, int64_t features) {
  return rows == nullptr ? nullptr : rows + row * features;
}

/// What a dropout leaves.
TRAINRUN_INLINE inline Floats kept_of(const uint8_t* kept, int64_t count, Floats x, float scale) {
  return load_bytes(kept, count) != Ints{} ? x * all_of(scale) : Floats{};
}

void forward_of_row(const NormShape& s, const NormForward& p, int64_t row) {
  const int64_t n = s.features;
  const float* x = p.x + row * n;
  float* const sum = row_of(p.sum, row, n);
  Floats total{};
  if (sum != nullptr) {
    const float* const plain = row_of(p.addend.plain, row, n);
    const Bfloat16* const half = row_of(p.addend.half, row, n);
    const uint8_t* const kept = row_of(p.addend.kept, row, n);
    for_vectors(n, [&](auto all, int64_t j, int64_t count) TRAINRUN_INLINE {
      Floats other = plain != nullptr ? get<all.value>(plain + j, count) : get<all.value>(half + j, count);
      if (kept != nullptr) other = kept_of(kept + j, count, other, p.addend.scale);
      const Floats both = get<all.value>(x + j, count) + other;
      put<all.value>(sum + j, both, count);
      total += both;
    });
    x = sum;
  } else if (!s.is_rms) {
    for_vectors(n, [&](auto all, int64_t j, int64_t count) TRAINRUN_INLINE { total += get<all.value>(x + j, count); });
  }
  const float mean = s.is_rms ? 0 : sum_of(total) / static_cast<float>(n);
  const Floats subtracted = all_of(mean);
  Floats squares{};
  for_vectors(n, [&](auto all, int64_t j, int64_t count) TRAINRUN_INLINE {
    Floats apart = get<all.value>(x + j, count) - subtracted;
    if (!all.value) apart = only_first(apart, count, 0);
    squares = multiplied_sum(apart, apart, squares);
  });
  const float factor = 1 / __builtin_sqrtf(sum_of(squares) / static_cast<float>(n) + s.eps);
  p.means[row] = mean;
  p.factors[row] = factor;
  float* const y = row_of(p.y, row, n);
  Bfloat16* const half = row_of(p.y_half, row, n);
  for_vectors(n, [&](auto all, int64_t j, int64_t count) TRAINRUN_INLINE {
    Floats normal = (get<all.value>(x + j, count) - subtracted) * all_of(factor);
    if (p.weight != nullptr) normal *= get<all.value>(p.weight + j, count);
    if (p.bias != nullptr) normal += get<all.value>(p.bias + j, count);
    if (y != nullptr) put<all.value>(y + j, normal, count);
    if (half != nullptr) put<all.value>(half + j, normal, count);
  });
}

/// The gradient of what was normalized is factor * (g - mean of g - normal * mean of (g * normal)), where `normal` is
/// what the weight was multiplied with, and g the output's gradient times the weight.
void backward_of_row(const NormShape& s, const NormBackward& p, int64_t row, float* scratch) {
  const int64_t n = s.features;
  const float* const x = p.x + row * n;
  const float* const of_y = row_of(p.grad_y, row, n);
  const Bfloat16* const of_half = row_of(p.grad_y_half, row, n);
  const Floats subtracted = all_of(p.means[row]), factor = all_of(p.factors[row]);
  Floats sum{}, products{};
  for_vectors(n, [&](auto all, int64_t j, int64_t count) TRAINRUN_INLINE {
    Floats g{};
    if (of_y != nullptr) g = get<all.value>(of_y + j, count);
    if (of_half != nullptr) g += get<all.value>(of_half + j, count);
    Floats normal = (get<all.value>(x + j, count) - subtracted) * factor;
    if (!all.value) normal = only_first(normal, count, 0);
    if (p.grad_weight != nullptr) {
      float* const to = p.grad_weight + j;
      put<all.value>(to, multiplied_sum(g, normal, get<all.value>(to, count)), count);
    }
    if (p.grad_bias != nullptr) put<all.value>(p.grad_bias + j, g + get<all.value>(p.grad_bias + j, count), count);
    if (p.weight != nullptr) g *= get<all.value>(p.weight + j, count);
    put<all.value>(scratch + j, g, count);
    sum += g;
    products = multiplied_sum(g, normal, products);
  });
  const float count_of_all = static_cast<float>(n);
  const Floats mean = all_of(s.is_rms ? 0 : sum_of(sum) / count_of_all);
  const Floats slope = all_of(sum_of(products) / count_of_all);
  const float* const of_sum = row_of(p.grad_sum, row, n);
  float* const to = p.grad_x + row * n;
  float* const plain = row_of(p.grad_plain, row, n);
  Bfloat16* const half = row_of(p.grad_half, row, n);
  const uint8_t* const kept = row_of(p.addend.kept, row, n);
  for_vectors(n, [&](auto all, int64_t j, int64_t count) TRAINRUN_INLINE {
    const Floats normal = (get<all.value>(x + j, count) - subtracted) * factor;
    Floats g = (get<all.value>(scratch + j, count) - mean - normal * slope) * factor;
    if (of_sum != nullptr) g += get<all.value>(of_sum + j, count);
    put<all.value>(to + j, g, count);
    if (kept != nullptr) g = kept_of(kept + j, count, g, p.addend.scale);
    if (plain != nullptr) put<all.value>(plain + j, g, count);
    if (half != nullptr) put<all.value>(half + j, g, count);
  });
}

}  // namespace

void norm_forward(const NormShape& shape, const NormForward& pass, int64_t begin, int64_t end) {
  for (int64_t row = begin; row < end; ++row) forward_of_row(shape, pass, row);
}

void norm_backward(const NormShape& shape, const NormBackward& pass, int64_t begin, int64_t end, float* scratch) {
  for (int64_t row = begin; row < end; ++row) backward_of_row(shape, pass, row, scratch);
}

}  // namespace trainrun::kernels::TRAINRUN_CPU_PATH
// NOLINTEND(modernize-avoid-c-arrays, readability-identifier-naming, readability-redundant-parentheses)
