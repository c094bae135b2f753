#include "registry/kernels/max_pool_loops.h"

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <algorithm>
#include <array>
#include <bit>
#include <limits>
#include <vector>

namespace trainrun::kernels {
namespace {

// The forward pass compares bits as whole numbers, which is quick for every type and is compiled without branches,
// which a processor could not foresee. Without its sign, a value that passed the ReLU is ordered as its bits are; both
// zeros are 0, and every NaN is above infinity.

/// The whole number of the same size, and the bits of infinity.
template <class T>
struct BitsOf;
template <>
struct BitsOf<float> {
  using Type = int32_t;
  static constexpr Type kInfinity = 0x7f800000;
};
template <>
struct BitsOf<double> {
  using Type = int64_t;
  static constexpr Type kInfinity = 0x7ff0000000000000;
};
template <>
struct BitsOf<c10::BFloat16> {
  using Type = int16_t;
  static constexpr Type kInfinity = 0x7f80;
};
template <>
struct BitsOf<c10::Half> {
  using Type = int16_t;
  static constexpr Type kInfinity = 0x7c00;
};
template <class T>
using Bits = typename BitsOf<T>::Type;

template <class T>
constexpr Bits<T> kNoSign = std::numeric_limits<Bits<T>>::max();

/// Windows that are gone through together, one point of each at a time.
template <class T>
struct Lanes {
  std::vector<Bits<T>> order;  // of the best value so far; -1 before there is one
  std::vector<Bits<T>> value;  // its bits, after the ReLU
  std::vector<Bits<T>> point;  // its number in the window

  explicit Lanes(int64_t count) : order(count), value(count), point(count) {}
  void start() { std::fill(order.begin(), order.end(), Bits<T>(-1)); }

  /// Point `number` of the windows from `first` to `last`: theirs is at in[0], in[step], in[2 * step], …
  template <int64_t kStep>
  void meet(const T* __restrict in, int64_t step, int64_t first, int64_t last, int64_t number) {
    const auto this_point = static_cast<Bits<T>>(number);
    Bits<T>* __restrict const orders = order.data() + first;
    Bits<T>* __restrict const values = value.data() + first;
    Bits<T>* __restrict const points = point.data() + first;
    for (int64_t lane = 0; lane < last - first; ++lane) {
      const auto bits = std::bit_cast<Bits<T>>(in[lane * (kStep > 0 ? kStep : step)]);
      const auto size = static_cast<Bits<T>>(bits & kNoSign<T>);
      const Bits<T> is_nan = mask(size > BitsOf<T>::kInfinity);
      // Below 0 in every other way; a NaN and -0.0 stay as they are.
      const auto passes = static_cast<Bits<T>>(~(mask(bits < 0) & mask(size > 0)) | is_nan);
      const auto this_order = static_cast<Bits<T>>(size & passes);
      const auto wins = static_cast<Bits<T>>(mask(this_order > orders[lane]) | is_nan);
      orders[lane] = choose(wins, this_order, orders[lane]);
      values[lane] = choose(wins, static_cast<Bits<T>>(bits & passes), values[lane]);
      points[lane] = choose(wins, this_point, points[lane]);
    }
  }
  void meet(const T* in, int64_t step, int64_t first, int64_t last, int64_t number) {
    if (step == 1) return meet<1>(in, 1, first, last, number);
    if (step == 2) return meet<2>(in, 2, first, last, number);
    meet<0>(in, step, first, last, number);
  }

  // All bits or none, and a choice by them: g++ vectorises these, but not conditions.
  static Bits<T> mask(bool yes) { return static_cast<Bits<T>>(yes ? -1 : 0); }
  static Bits<T> choose(Bits<T> mask, Bits<T> a, Bits<T> b) { return static_cast<Bits<T>>((mask & a) | (~mask & b)); }

  void write(T* __restrict y, uint8_t* __restrict winners) const {
    const auto count = static_cast<int64_t>(order.size());
    const Bits<T>* __restrict const orders = order.data();
    const Bits<T>* __restrict const values = value.data();
    const Bits<T>* __restrict const points = point.data();
    for (int64_t lane = 0; lane < count; ++lane) y[lane] = std::bit_cast<T>(values[lane]);
    if (winners == nullptr) return;
    static_assert(kNoWinner == 0xff);  // what every point becomes where all bits are set
    for (int64_t lane = 0; lane < count; ++lane) {
      winners[lane] = static_cast<uint8_t>(points[lane] | mask(orders[lane] == 0));
    }
  }
};

int64_t ceil_of(int64_t number, int64_t divisor) { return number <= 0 ? 0 : (number + divisor - 1) / divisor; }

/// Calls visit(i, row) for the rows of an image that lie in windows of output row `out_row`.
template <class Visit>
void for_each_row(const PoolGeometry& g, int64_t out_row, const Visit& visit) {
  const int64_t start = out_row * g.stride_height - g.padding_height;
  const int64_t last = std::min(g.kernel_height, ceil_of(g.height - start, g.dilation_height));
  for (int64_t i = ceil_of(-start, g.dilation_height); i < last; ++i) visit(i, start + i * g.dilation_height);
}

/// A row of outputs of an image of one channel: the windows of the row are the lanes.
template <class T>
void pool_row(const PoolGeometry& g, const T* image, int64_t out_row, Lanes<T>& lanes) {
  lanes.start();
  for_each_row(g, out_row, [&](int64_t i, int64_t row) {
    for (int64_t j = 0; j < g.kernel_width; ++j) {
      const int64_t offset = j * g.dilation_width - g.padding_width;  // of point j from where its window's step begins
      const int64_t first = ceil_of(-offset, g.stride_width);
      const int64_t last = std::min(g.out_width, ceil_of(g.width - offset, g.stride_width));
      if (first >= last) continue;
      lanes.meet(image + row * g.width + first * g.stride_width + offset, g.stride_width, first, last,
                 i * g.kernel_width + j);
    }
  });
}

/// One output of all channels, which lie side by side and are the lanes.
template <class T>
void pool_channels(const PoolGeometry& g, const T* image, int64_t out_row, int64_t out_column, Lanes<T>& lanes) {
  lanes.start();
  const int64_t start = out_column * g.stride_width - g.padding_width;
  const int64_t first = ceil_of(-start, g.dilation_width);
  const int64_t last = std::min(g.kernel_width, ceil_of(g.width - start, g.dilation_width));
  for_each_row(g, out_row, [&](int64_t i, int64_t row) {
    for (int64_t j = first; j < last; ++j) {
      lanes.meet(image + (row * g.width + start + j * g.dilation_width) * g.channels, 1, 0, g.channels,
                 i * g.kernel_width + j);
    }
  });
}

/// Calls visit(output, input) for each window of the images from `begin` to `end` and each of its channels: the number
/// of the output value, and where in x its winner is, or -1.
template <class Visit>
void for_each_winner(const PoolGeometry& g, const uint8_t* winners, int64_t begin, int64_t end, const Visit& visit) {
  std::array<int64_t, kNoWinner> offsets{};  // of a window's points from its first one
  for (int64_t point = 0; point < g.kernel_height * g.kernel_width; ++point) {
    offsets[point] =
        (point / g.kernel_width * g.dilation_height * g.width + point % g.kernel_width * g.dilation_width) * g.channels;
  }
  int64_t output = begin * g.out_height * g.out_width * g.channels;
  for (int64_t image = begin; image < end; ++image) {
    for (int64_t row = 0; row < g.out_height; ++row) {
      const int64_t start_row = image * g.height + row * g.stride_height - g.padding_height;
      for (int64_t column = 0; column < g.out_width; ++column) {
        const int64_t start = (start_row * g.width + column * g.stride_width - g.padding_width) * g.channels;
        for (int64_t c = 0; c < g.channels; ++c, ++output) {
          const uint8_t winner = winners[output];
          visit(output, winner == kNoWinner ? -1 : start + offsets[winner] + c);
        }
      }
    }
  }
}

}  // namespace

template <class T>
void relu_max_pool_forward(const PoolGeometry& g, const T* x, T* y, uint8_t* winners, int64_t begin, int64_t end) {
  const bool by_row = g.channels == 1;
  Lanes<T> lanes(by_row ? g.out_width : g.channels);
  const auto lanes_count = by_row ? g.out_width : g.channels;
  for (int64_t image = begin; image < end; ++image) {
    const T* const in = x + image * g.height * g.width * g.channels;
    for (int64_t row = 0; row < g.out_height; ++row) {
      int64_t output = (image * g.out_height + row) * g.out_width * g.channels;
      for (int64_t column = 0; column < (by_row ? 1 : g.out_width); ++column, output += lanes_count) {
        if (by_row) {
          pool_row(g, in, row, lanes);
        } else {
          pool_channels(g, in, row, column, lanes);
        }
        lanes.write(y + output, winners == nullptr ? nullptr : winners + output);
      }
    }
  }
}

template <class T>
void relu_max_pool_backward(const PoolGeometry& g, const T* grad_y, const uint8_t* winners, T* grad_x, int64_t begin,
                            int64_t end) {
  const int64_t size = g.height * g.width * g.channels;
  std::fill(grad_x + begin * size, grad_x + end * size, T(0));
  for_each_winner(g, winners, begin, end, [&](int64_t output, int64_t input) {
    if (input >= 0) grad_x[input] += grad_y[output];
  });
}

template <class T>
void relu_max_pool_gather(const PoolGeometry& g, const T* of_x, const uint8_t* winners, T* of_y, int64_t begin,
                          int64_t end) {
  for_each_winner(g, winners, begin, end,
                  [&](int64_t output, int64_t input) { of_y[output] = input >= 0 ? of_x[input] : T(0); });
}

#define TRAINRUN_LOOPS_OF(T)                                                                                    \
  template void relu_max_pool_forward<T>(const PoolGeometry&, const T*, T*, uint8_t*, int64_t, int64_t);        \
  template void relu_max_pool_backward<T>(const PoolGeometry&, const T*, const uint8_t*, T*, int64_t, int64_t); \
  template void relu_max_pool_gather<T>(const PoolGeometry&, const T*, const uint8_t*, T*, int64_t, int64_t)
TRAINRUN_LOOPS_OF(float);
TRAINRUN_LOOPS_OF(double);
TRAINRUN_LOOPS_OF(c10::BFloat16);
TRAINRUN_LOOPS_OF(c10::Half);
#undef TRAINRUN_LOOPS_OF

}  // namespace trainrun::kernels
