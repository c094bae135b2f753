#include "registry/kernels/max_pool_loops.h"
#include "registry/kernels/stored_floats.h"
#include "registry/kernels/vectors.h"

// kLanes windows at a time; the last ones of a row under a mask, so that no row has a scalar rest. Bfloat16 is compared
// as float32, which holds it exactly.

namespace trainrun::kernels::TRAINRUN_CPU_PATH {
namespace {

/// The ReLU, which leaves NaN and -0.0 as they are.
template <bool kRelu>
inline Floats positive(Floats x) {
  return kRelu ? larger(Floats{}, x) : x;
}

/// The largest values so far, after the ReLU, and the points of the windows that they are, in the order of `evens`.
template <bool kRelu>
struct Best {
  Floats value;
  Ints point;

  void meet(Floats x, int number) {
    x = positive<kRelu>(x);
    const Ints wins = (x > value) | (x != x);
    value = wins ? x : value;
    point = wins ? all_of(number) : point;
  }
};

template <bool kRelu, class T>
void forward_row(const T* top, const T* bottom, T* y, uint8_t* winners, int64_t out_width) {
  for (int64_t j = 0; j < out_width; j += kLanes) {
    const int64_t left = out_width - j;
    const Floats t0 = get<false>(top + 2 * j, 2 * left), t1 = get<false>(top + 2 * j + kLanes, 2 * left - kLanes);
    const Floats b0 = get<false>(bottom + 2 * j, 2 * left), b1 = get<false>(bottom + 2 * j + kLanes, 2 * left - kLanes);
    Best<kRelu> best{positive<kRelu>(evens(t0, t1)), Ints{}};
    best.meet(odds(t0, t1), 1);
    best.meet(evens(b0, b1), 2);
    best.meet(odds(b0, b1), 3);
    put<false>(y + j, in_order(best.value), left);
    if (winners == nullptr) continue;
    const Ints point = kRelu ? (best.value <= Floats{} ? all_of(kNoWinner) : best.point) : best.point;
    store_bytes(winners + j, in_order(point), left);
  }
}

/// Writes a row of grad_x: the gradients of the windows won by the left point (`number`) or the one right of it.
template <class T>
void store_row(T* row, Floats gradient, Ints points, int number, int64_t left) {
  const Floats a = points == all_of(number) ? gradient : Floats{};
  const Floats b = points == all_of(number + 1) ? gradient : Floats{};
  put<false>(row, interleaved_low(a, b), 2 * left);
  put<false>(row + kLanes, interleaved_high(a, b), 2 * left - kLanes);
}

template <class T>
void backward_row(const T* grad_y, const uint8_t* winners, T* top, T* bottom, int64_t out_width) {
  for (int64_t j = 0; j < out_width; j += kLanes) {
    const int64_t left = out_width - j;
    // Added to 0, as ATen's sum over windows is: a gradient of -0.0 comes out as 0.0.
    const Floats gradient = get<false>(grad_y + j, left) + Floats{};
    const Ints points = load_bytes(winners + j, left);
    store_row(top + 2 * j, gradient, points, 0, left);
    store_row(bottom + 2 * j, gradient, points, 2, left);
  }
}

template <bool kRelu, class T>
void forward(const PoolGeometry& g, const T* x, T* y, uint8_t* winners, int64_t begin, int64_t end) {
  for (int64_t image = begin; image < end; ++image) {
    for (int64_t row = 0; row < g.out_height; ++row) {
      const T* top = x + (image * g.height + 2 * row) * g.width;
      const int64_t output = (image * g.out_height + row) * g.out_width;
      forward_row<kRelu>(top, top + g.width, y + output, winners == nullptr ? nullptr : winners + output, g.out_width);
    }
  }
}

template <class T>
void backward(const PoolGeometry& g, const T* grad_y, const uint8_t* winners, T* grad_x, int64_t begin, int64_t end) {
  for (int64_t image = begin; image < end; ++image) {
    T* const first = grad_x + image * g.height * g.width;
    for (int64_t row = 0; row < g.out_height; ++row) {
      T* const top = first + 2 * row * g.width;
      T* const bottom = top + g.width;
      const int64_t output = (image * g.out_height + row) * g.out_width;
      backward_row(grad_y + output, winners + output, top, bottom, g.out_width);
      for (int64_t j = 2 * g.out_width; j < g.width; ++j) top[j] = bottom[j] = 0;
    }
    for (int64_t i = 2 * g.out_height * g.width; i < g.height * g.width; ++i) first[i] = 0;
  }
}

}  // namespace

void max_pool_2x2_forward(const HalvingPool& pool, const void* x, void* y, uint8_t* winners, int64_t begin,
                          int64_t end) {
  with_type(pool.is_bfloat16, [&](auto type) {
    using T = decltype(type);
    const auto* const from = static_cast<const T*>(x);
    if (pool.has_relu) {
      forward<true>(pool.geometry, from, static_cast<T*>(y), winners, begin, end);
    } else {
      forward<false>(pool.geometry, from, static_cast<T*>(y), winners, begin, end);
    }
  });
}

void max_pool_2x2_backward(const HalvingPool& pool, const void* grad_y, const uint8_t* winners, void* grad_x,
                           int64_t begin, int64_t end) {
  with_type(pool.is_bfloat16, [&](auto type) {
    using T = decltype(type);
    backward(pool.geometry, static_cast<const T*>(grad_y), winners, static_cast<T*>(grad_x), begin, end);
  });
}

}  // namespace trainrun::kernels::TRAINRUN_CPU_PATH
