#include "registry/kernels/relu_max_pool_loops.h"

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <algorithm>
#include <array>
#include <memory>

namespace trainrun::kernels {
namespace {

template <class T>
T relu_of(T value) {
  return value < T(0) ? T(0) : value;  // a NaN and -0.0 stay as they are
}

template <class T>
bool wins(T value, T best) {
  return value > best || value != value;
}

/// The part of a window that lies within the image, along one dimension: its points `first` to `last` of `kernel`.
struct Span {
  int64_t start;  // where point 0 is; may be negative
  int64_t first, last;
  Span(int64_t output, int64_t size, int64_t kernel, int64_t stride, int64_t padding, int64_t dilation)
      : start(output * stride - padding),
        first(start < 0 ? (-start + dilation - 1) / dilation : 0),
        last(std::min(kernel, (size - start + dilation - 1) / dilation)) {}
};

Span row_span(const PoolGeometry& g, int64_t row) {
  return {row, g.height, g.kernel_height, g.stride_height, g.padding_height, g.dilation_height};
}

Span column_span(const PoolGeometry& g, int64_t column) {
  return {column, g.width, g.kernel_width, g.stride_width, g.padding_width, g.dilation_width};
}

/// One window of an image of one channel.
template <class T>
T pool_point(const PoolGeometry& g, const T* image, const Span& rows, const Span& columns, uint8_t* winner) {
  const auto value_at = [&](int64_t i, int64_t j) {
    return relu_of(image[(rows.start + i * g.dilation_height) * g.width + columns.start + j * g.dilation_width]);
  };
  T best = value_at(rows.first, columns.first);
  int64_t best_point = rows.first * g.kernel_width + columns.first;
  for (int64_t i = rows.first; i < rows.last; ++i) {
    for (int64_t j = columns.first; j < columns.last; ++j) {
      const T value = value_at(i, j);
      const bool better = wins(value, best);
      best = better ? value : best;
      best_point = better ? i * g.kernel_width + j : best_point;
    }
  }
  if (winner != nullptr) *winner = best <= T(0) ? kNoWinner : static_cast<uint8_t>(best_point);
  return best;
}

/// One window of all channels, which lie side by side: `best` and `winners` are written as the window is gone through.
template <class T>
void pool_channels(const PoolGeometry& g, const T* image, const Span& rows, const Span& columns, T* __restrict best,
                   uint8_t* __restrict winners) {
  bool first = true;
  for (int64_t i = rows.first; i < rows.last; ++i) {
    for (int64_t j = columns.first; j < columns.last; ++j) {
      const int64_t row = rows.start + i * g.dilation_height, column = columns.start + j * g.dilation_width;
      const T* __restrict values = image + (row * g.width + column) * g.channels;
      const auto point = static_cast<uint8_t>(i * g.kernel_width + j);
      for (int64_t c = 0; c < g.channels; ++c) {
        const T value = relu_of(values[c]);
        const bool better = first || wins(value, best[c]);
        best[c] = better ? value : best[c];
        winners[c] = better ? point : winners[c];
      }
      first = false;
    }
  }
  for (int64_t c = 0; c < g.channels; ++c) winners[c] = best[c] <= T(0) ? kNoWinner : winners[c];
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
  std::unique_ptr<uint8_t[]> unused;  // pool_channels tells its winners even where nobody asks
  if (winners == nullptr && g.channels > 1) unused = std::make_unique<uint8_t[]>(g.channels);
  for (int64_t image = begin; image < end; ++image) {
    const T* in = x + image * g.height * g.width * g.channels;
    for (int64_t row = 0; row < g.out_height; ++row) {
      const Span rows = row_span(g, row);
      for (int64_t column = 0; column < g.out_width; ++column) {
        const int64_t output = ((image * g.out_height + row) * g.out_width + column) * g.channels;
        uint8_t* const winner = winners == nullptr ? unused.get() : winners + output;
        if (g.channels == 1) {
          y[output] = pool_point(g, in, rows, column_span(g, column), winner);
        } else {
          pool_channels(g, in, rows, column_span(g, column), y + output, winner);
        }
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
