#if defined(__x86_64__)

#include <immintrin.h>

#include "registry/kernels/relu_max_pool_loops.h"

// Sixteen windows at a time; the last ones of a row under a mask, so that no row has a scalar rest.

namespace trainrun::kernels {
namespace {

/// The lowest `count` of 16 bits; none where `count` is negative, all where it is above 16.
__mmask16 lowest(int64_t count) {
  return static_cast<__mmask16>(count <= 0 ? 0 : count >= 16 ? 0xffff : (1U << count) - 1);
}

/// Every second of the 32 numbers in `low` and `high`, from number 0 on, and from number 1 on.
__m512 even(__m512 low, __m512 high) {
  const __m512i order = _mm512_set_epi32(30, 28, 26, 24, 22, 20, 18, 16, 14, 12, 10, 8, 6, 4, 2, 0);
  return _mm512_permutex2var_ps(low, order, high);
}
__m512 odd(__m512 low, __m512 high) {
  const __m512i order = _mm512_set_epi32(31, 29, 27, 25, 23, 21, 19, 17, 15, 13, 11, 9, 7, 5, 3, 1);
  return _mm512_permutex2var_ps(low, order, high);
}

/// The largest values so far, after the ReLU, and the points of the windows that they are.
struct Best {
  __m512 value;
  __m512i point;

  void meet(__m512 x, int number) {
    x = _mm512_max_ps(_mm512_setzero_ps(), x);  // gives x where it is NaN or -0.0
    const __mmask16 wins = _mm512_cmp_ps_mask(x, value, _CMP_GT_OQ) | _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
    value = _mm512_mask_mov_ps(value, wins, x);
    point = _mm512_mask_mov_epi32(point, wins, _mm512_set1_epi32(number));
  }
};

void forward_row(const float* top, const float* bottom, float* y, uint8_t* winners, int64_t out_width) {
  for (int64_t j = 0; j < out_width; j += 16) {
    const int64_t left = out_width - j;
    const __mmask16 low = lowest(2 * left), high = lowest(2 * left - 16);
    const __m512 t0 = _mm512_maskz_loadu_ps(low, top + 2 * j), t1 = _mm512_maskz_loadu_ps(high, top + 2 * j + 16);
    const __m512 b0 = _mm512_maskz_loadu_ps(low, bottom + 2 * j);
    const __m512 b1 = _mm512_maskz_loadu_ps(high, bottom + 2 * j + 16);
    Best best{_mm512_max_ps(_mm512_setzero_ps(), even(t0, t1)), _mm512_setzero_si512()};
    best.meet(odd(t0, t1), 1);
    best.meet(even(b0, b1), 2);
    best.meet(odd(b0, b1), 3);
    _mm512_mask_storeu_ps(y + j, lowest(left), best.value);
    if (winners == nullptr) continue;
    const __mmask16 none = _mm512_cmp_ps_mask(best.value, _mm512_setzero_ps(), _CMP_LE_OQ);
    best.point = _mm512_mask_mov_epi32(best.point, none, _mm512_set1_epi32(kNoWinner));
    _mm512_mask_cvtepi32_storeu_epi8(winners + j, lowest(left), best.point);
  }
}

/// Writes a row of grad_x: the gradients of the windows won by the left point (`number`) or the one right of it.
void store_row(float* row, __m512 gradient, __m512i points, int number, int64_t left) {
  const __m512i low = _mm512_set_epi32(23, 7, 22, 6, 21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
  const __m512i high = _mm512_set_epi32(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8);
  const auto of = [&](int point) {
    return _mm512_maskz_mov_ps(_mm512_cmpeq_epi32_mask(points, _mm512_set1_epi32(point)), gradient);
  };
  const __m512 a = of(number), b = of(number + 1);
  _mm512_mask_storeu_ps(row, lowest(2 * left), _mm512_permutex2var_ps(a, low, b));
  _mm512_mask_storeu_ps(row + 16, lowest(2 * left - 16), _mm512_permutex2var_ps(a, high, b));
}

void backward_row(const float* grad_y, const uint8_t* winners, float* top, float* bottom, int64_t out_width) {
  for (int64_t j = 0; j < out_width; j += 16) {
    const int64_t left = out_width - j;
    // Added to 0, as ATen's sum over windows is: a gradient of -0.0 comes out as 0.0.
    const __m512 gradient = _mm512_add_ps(_mm512_maskz_loadu_ps(lowest(left), grad_y + j), _mm512_setzero_ps());
    const __m512i points = _mm512_cvtepu8_epi32(_mm_maskz_loadu_epi8(lowest(left), winners + j));
    store_row(top + 2 * j, gradient, points, 0, left);
    store_row(bottom + 2 * j, gradient, points, 2, left);
  }
}

}  // namespace

void relu_max_pool_2x2_forward_avx512(const PoolGeometry& g, const float* x, float* y, uint8_t* winners, int64_t begin,
                                      int64_t end) {
  for (int64_t image = begin; image < end; ++image) {
    for (int64_t row = 0; row < g.out_height; ++row) {
      const float* top = x + (image * g.height + 2 * row) * g.width;
      const int64_t output = (image * g.out_height + row) * g.out_width;
      forward_row(top, top + g.width, y + output, winners == nullptr ? nullptr : winners + output, g.out_width);
    }
  }
}

void relu_max_pool_2x2_backward_avx512(const PoolGeometry& g, const float* grad_y, const uint8_t* winners,
                                       float* grad_x, int64_t begin, int64_t end) {
  for (int64_t image = begin; image < end; ++image) {
    float* const first = grad_x + image * g.height * g.width;
    for (int64_t row = 0; row < g.out_height; ++row) {
      float* const top = first + 2 * row * g.width;
      float* const bottom = top + g.width;
      const int64_t output = (image * g.out_height + row) * g.out_width;
      backward_row(grad_y + output, winners + output, top, bottom, g.out_width);
      for (int64_t j = 2 * g.out_width; j < g.width; ++j) top[j] = bottom[j] = 0;
    }
    for (int64_t i = 2 * g.out_height * g.width; i < g.height * g.width; ++i) first[i] = 0;
  }
}

}  // namespace trainrun::kernels

#endif
