#include "registry/kernels/silu_product_simd.h"

#include "registry/kernels/row_math.h"

// NOLINTBEGIN(readability-identifier-naming): see README.md

namespace trainrun::kernels::TRAINRUN_CPU_PATH {
namespace {

/// 1 / (1 + e^-x), right to 2e-7 of it above -87, where it is as good as 0; NaN stays one.
TRAINRUN_INLINE inline Floats sigmoid(Floats x) {
  const Floats power = exponential(-larger(all_of(-87.0F), x));  // of NaN `larger` gives its second
  return all_of(1.0F) / (all_of(1.0F) + power);
}

template <bool kAll, class T>
TRAINRUN_INLINE inline void forward(const T* gate, const T* up, T* y, int64_t count) {
  const Floats g = get<kAll>(gate, count);
  put<kAll>(y, g * sigmoid(g) * get<kAll>(up, count), count);
}

template <bool kAll, class T>
TRAINRUN_INLINE inline void back(const T* gate, const T* up, const T* grad_y, T* grad_gate, T* grad_up, int64_t count) {
  const Floats g = get<kAll>(gate, count), of_y = get<kAll>(grad_y, count);
  const Floats share = sigmoid(g);
  const Floats slope = share * multiplied_sum(g, all_of(1.0F) - share, all_of(1.0F));
  const Floats of_gate = of_y * get<kAll>(up, count) * slope;
  put<kAll>(grad_up, of_y * g * share, count);
  put<kAll>(grad_gate, of_gate, count);
}

template <class T>
void forward_as(const SiluProductRange& range, const void* gate, const void* up, void* y) {
  const T *g = static_cast<const T*>(gate), *u = static_cast<const T*>(up);
  T* const to = static_cast<T*>(y);
  int64_t i = range.begin;
  for (; i + kLanes <= range.end; i += kLanes) forward<true>(g + i, u + i, to + i, kLanes);
  if (i < range.end) forward<false>(g + i, u + i, to + i, range.end - i);
}

template <class T>
void back_as(const SiluProductRange& range, const void* gate, const void* up, const void* grad_y, void* grad_gate,
             void* grad_up) {
  const T *g = static_cast<const T*>(gate), *u = static_cast<const T*>(up), *of_y = static_cast<const T*>(grad_y);
  T *to_gate = static_cast<T*>(grad_gate), *to_up = static_cast<T*>(grad_up);
  int64_t i = range.begin;
  for (; i + kLanes <= range.end; i += kLanes) back<true>(g + i, u + i, of_y + i, to_gate + i, to_up + i, kLanes);
  if (i < range.end) back<false>(g + i, u + i, of_y + i, to_gate + i, to_up + i, range.end - i);
}

}  // namespace

void silu_product(const SiluProductRange& range, const void* gate, const void* up, void* y) {
  (range.is_bfloat16 ? forward_as<Bfloat16> : forward_as<float>)(range, gate, up, y);
}

void silu_product_back(const SiluProductRange& range, const void* gate, const void* up, const void* grad_y,
                       void* grad_gate, void* grad_up) {
  (range.is_bfloat16 ? back_as<Bfloat16> : back_as<float>)(range, gate, up, grad_y, grad_gate, grad_up);
}

}  // namespace trainrun::kernels::TRAINRUN_CPU_PATH
// NOLINTEND(readability-identifier-naming)
