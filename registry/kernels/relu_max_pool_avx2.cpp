#if defined(__x86_64__)

#include <immintrin.h>

#include "registry/kernels/relu_max_pool_loops.h"

// Eight windows at a time; the last ones of a row under a mask, so that no row has a scalar rest. Masked stores are
// slow on some processors: full groups do without.

namespace trainrun::kernels {
namespace {

/// All bits set in the lowest `count` of 8 lanes; none where `count` is negative, all where it is above 8.
__m256i lowest(int64_t count) {
  alignas(32) static const int32_t bits[16] = {-1, -1, -1, -1, -1, -1, -1, -1, 0, 0, 0, 0, 0, 0, 0, 0};
  const int64_t lanes = count < 0 ? 0 : count > 8 ? 8 : count;
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(bits + 8 - lanes));
}

/// The first `count` numbers at `from`, zeros after them.
__m256 load(const float* from, int64_t count) {
  return count >= 8 ? _mm256_loadu_ps(from) : _mm256_maskload_ps(from, lowest(count));
}

void store(float* to, __m256 values, int64_t count) {
  if (count >= 8) {
    _mm256_storeu_ps(to, values);
  } else if (count > 0) {
    _mm256_maskstore_ps(to, lowest(count), values);
  }
}

/// The 32-bit numbers' lowest bytes, of the first `count`.
void store_bytes(uint8_t* to, __m256i numbers, int64_t count) {
  const __m128i words = _mm_packs_epi32(_mm256_castsi256_si128(numbers), _mm256_extracti128_si256(numbers, 1));
  const auto bytes = static_cast<uint64_t>(_mm_cvtsi128_si64(_mm_packus_epi16(words, words)));
  __builtin_memcpy(to, &bytes, count >= 8 ? 8 : static_cast<size_t>(count));
}

__m256i load_bytes(const uint8_t* from, int64_t count) {
  uint64_t bytes = 0;
  __builtin_memcpy(&bytes, from, count >= 8 ? 8 : static_cast<size_t>(count));
  return _mm256_cvtepu8_epi32(_mm_cvtsi64_si128(static_cast<int64_t>(bytes)));
}

/// The largest values so far, after the ReLU, and the points of the windows that they are. Lanes are in the order in
/// which shuffles leave every second of 16 numbers: windows 0, 1, 4, 5, 2, 3, 6, 7.
struct Best {
  __m256 value;
  __m256i point;

  void meet(__m256 x, int number) {
    x = _mm256_max_ps(_mm256_setzero_ps(), x);  // gives x where it is NaN or -0.0
    const __m256 wins = _mm256_or_ps(_mm256_cmp_ps(x, value, _CMP_GT_OQ), _mm256_cmp_ps(x, x, _CMP_UNORD_Q));
    value = _mm256_blendv_ps(value, x, wins);
    point = _mm256_blendv_epi8(point, _mm256_set1_epi32(number), _mm256_castps_si256(wins));
  }
};

void forward_row(const float* top, const float* bottom, float* y, uint8_t* winners, int64_t out_width) {
  for (int64_t j = 0; j < out_width; j += 8) {
    const int64_t left = out_width - j;
    const __m256 t0 = load(top + 2 * j, 2 * left), t1 = load(top + 2 * j + 8, 2 * left - 8);
    const __m256 b0 = load(bottom + 2 * j, 2 * left), b1 = load(bottom + 2 * j + 8, 2 * left - 8);
    Best best{_mm256_max_ps(_mm256_setzero_ps(), _mm256_shuffle_ps(t0, t1, 0x88)), _mm256_setzero_si256()};
    best.meet(_mm256_shuffle_ps(t0, t1, 0xdd), 1);
    best.meet(_mm256_shuffle_ps(b0, b1, 0x88), 2);
    best.meet(_mm256_shuffle_ps(b0, b1, 0xdd), 3);
    const __m256 value = _mm256_castpd_ps(_mm256_permute4x64_pd(_mm256_castps_pd(best.value), 0xd8));
    store(y + j, value, left);
    if (winners == nullptr) continue;
    const __m256i none = _mm256_castps_si256(_mm256_cmp_ps(best.value, _mm256_setzero_ps(), _CMP_LE_OQ));
    const __m256i point = _mm256_blendv_epi8(best.point, _mm256_set1_epi32(kNoWinner), none);
    store_bytes(winners + j, _mm256_permute4x64_epi64(point, 0xd8), left);
  }
}

/// Writes a row of grad_x: the gradients of the windows won by the left point (`number`) or the one right of it.
void store_row(float* row, __m256 gradient, __m256i points, int number, int64_t left) {
  const auto of = [&](int point) {
    return _mm256_and_ps(gradient, _mm256_castsi256_ps(_mm256_cmpeq_epi32(points, _mm256_set1_epi32(point))));
  };
  const __m256 a = of(number), b = of(number + 1);
  const __m256 low = _mm256_unpacklo_ps(a, b), high = _mm256_unpackhi_ps(a, b);
  store(row, _mm256_permute2f128_ps(low, high, 0x20), 2 * left);
  store(row + 8, _mm256_permute2f128_ps(low, high, 0x31), 2 * left - 8);
}

void backward_row(const float* grad_y, const uint8_t* winners, float* top, float* bottom, int64_t out_width) {
  for (int64_t j = 0; j < out_width; j += 8) {
    const int64_t left = out_width - j;
    // Added to 0, as ATen's sum over windows is: a gradient of -0.0 comes out as 0.0.
    const __m256 gradient = _mm256_add_ps(load(grad_y + j, left), _mm256_setzero_ps());
    const __m256i points = load_bytes(winners + j, left);
    store_row(top + 2 * j, gradient, points, 0, left);
    store_row(bottom + 2 * j, gradient, points, 2, left);
  }
}

}  // namespace

void relu_max_pool_2x2_forward_avx2(const PoolGeometry& g, const float* x, float* y, uint8_t* winners, int64_t begin,
                                    int64_t end) {
  for (int64_t image = begin; image < end; ++image) {
    for (int64_t row = 0; row < g.out_height; ++row) {
      const float* top = x + (image * g.height + 2 * row) * g.width;
      const int64_t output = (image * g.out_height + row) * g.out_width;
      forward_row(top, top + g.width, y + output, winners == nullptr ? nullptr : winners + output, g.out_width);
    }
  }
}

void relu_max_pool_2x2_backward_avx2(const PoolGeometry& g, const float* grad_y, const uint8_t* winners, float* grad_x,
                                     int64_t begin, int64_t end) {
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
