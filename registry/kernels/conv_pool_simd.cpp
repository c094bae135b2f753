#include "registry/kernels/conv_pool_simd.h"

#include "registry/kernels/max_pool_loops.h"
#include "registry/kernels/small_products.h"
#include "registry/kernels/stored_floats.h"
#include "registry/kernels/vectors.h"

// NOLINTBEGIN(modernize-avoid-c-arrays, readability-identifier-naming, readability-redundant-parentheses): see README.md

// The lanes are windows of a row. Point (i, j) of window w lies at column 2 * w + j: in the half of even or of odd
// columns, side by side with those of the other windows.

namespace trainrun::kernels::TRAINRUN_CPU_PATH {
namespace {

/// Column `number` of kLanes windows.
TRAINRUN_INLINE inline Floats column_of(const float* row, int64_t half, int number) {
  return load_all(row + number % 2 * half + number / 2);
}

/// What the four points of kLanes windows are, for one filter.
struct Points {
  Floats at[2][2];
};

/// Of kFilters filters, whose weights are `of_filter` numbers apart: what one channel gives.
template <int kTaps, int kFilters>
TRAINRUN_INLINE inline void add_products(const ConvPool& shape, const float* rows, const float* weights,
                                         int64_t of_filter, Points (&sums)[kFilters]) {
  unrolled<kTaps + 1>([&](auto r) TRAINRUN_INLINE {
    const float* const row = rows + r * shape.row_size();
    unrolled<kTaps + 1>([&](auto c) TRAINRUN_INLINE {
      const Floats x = column_of(row, shape.half_size(), c);
      unrolled<4 * kFilters>([&](auto number) TRAINRUN_INLINE {
        constexpr int f = number.value / 4, i = number.value % 4 / 2, j = number.value % 2;
        constexpr int down = r.value - i, right = c.value - j;
        if constexpr (down >= 0 && down < kTaps && right >= 0 && right < kTaps) {
          constexpr int64_t tap = int64_t{down} * kTaps + right;
          const Floats weight = all_of(weights[f * of_filter + tap]);
          sums[f].at[i][j] = multiplied_sum(x, weight, sums[f].at[i][j]);
        }
      });
    });
  });
}

/// The largest of the four, as max_pool_simd.cpp finds it.
template <bool kRelu>
TRAINRUN_INLINE inline Floats largest(const Points& sums, Ints* winner) {
  const auto passed = [](Floats x) TRAINRUN_INLINE { return kRelu ? larger(Floats{}, x) : x; };
  Floats value = passed(sums.at[0][0]);
  Ints point{};
  unrolled<3>([&](auto k) TRAINRUN_INLINE {
    constexpr int number = k.value + 1;
    const Floats x = passed(sums.at[number / 2][number % 2]);
    const Ints wins = (x > value) | (x != x);
    value = wins ? x : value;
    point = wins ? all_of(number) : point;
  });
  *winner = kRelu ? (value <= Floats{} ? all_of(kNoWinner) : point) : point;
  return value;
}

/// Of kFilters filters from f on, kLanes windows from column w of a row on.
template <int kTaps, bool kRelu, int kFilters, class T>
TRAINRUN_INLINE inline void windows(const ConvPool& s, const float* rows, const float* weights, const float* bias,
                                    int64_t f, int64_t left, T* y, uint8_t* winners) {
  const int64_t of_filter = s.channels * kTaps * kTaps;
  Points sums[kFilters];
  unrolled<4 * kFilters>([&](auto number) TRAINRUN_INLINE {
    constexpr int filter = number.value / 4, point = number.value % 4;
    sums[filter].at[point / 2][point % 2] = bias == nullptr ? Floats{} : all_of(bias[f + filter]);
  });
  for (int64_t c = 0; c < s.channels; ++c) {
    add_products<kTaps>(s, rows + c * s.rows() * s.row_size(), weights + f * of_filter + c * kTaps * kTaps, of_filter,
                        sums);
  }
  unrolled<kFilters>([&](auto filter) TRAINRUN_INLINE {
    Ints winner;
    const Floats value = largest<kRelu>(sums[filter.value], &winner);
    const int64_t place = (f + filter) * s.out_height * s.out_width;
    put<false>(y + place, value, left);
    if (winners != nullptr) store_bytes(winners + place, winner, left);
  });
}

/// Fetches memory that will soon be read or written, which lies in no cache: between two steps, others fill them.
inline void fetch(const void* begin, int64_t bytes) {
  constexpr int64_t kLine = 64;
  const char* const at = static_cast<const char*>(begin);
  for (int64_t next = 0; next < bytes; next += kLine) __builtin_prefetch(at + next);
}

template <int kTaps, bool kRelu, class T>
void forward(const ConvPool& s, const float* halves, const float* weights, const float* bias, T* y, uint8_t* winners) {
  constexpr int kAtOnce = 2;  // filters that read each column once
  const int64_t of_image = s.filters * s.out_height * s.out_width, of_row = s.filters * s.out_width;
  for (int64_t row = 0; row < s.out_height; ++row) {
    fetch(y + of_image + row * of_row, of_row * static_cast<int64_t>(sizeof(T)));
    if (winners != nullptr) fetch(winners + of_image + row * of_row, of_row);
    for (int64_t next = 0; next < s.out_width; next += kLanes) {
      const int64_t last = s.out_width - kLanes;  // the row's last windows are all computed at once, some of them again
      const int64_t w = last < 0 ? 0 : lesser(next, last);
      const float* const rows = halves + 2 * row * s.row_size() + w;
      const int64_t place = row * s.out_width + w, left = s.out_width - w;
      uint8_t* const won = winners == nullptr ? nullptr : winners + place;
      int64_t f = 0;
      for (; f + kAtOnce <= s.filters; f += kAtOnce) {
        windows<kTaps, kRelu, kAtOnce>(s, rows, weights, bias, f, left, y + place, won);
      }
      for (; f < s.filters; ++f) windows<kTaps, kRelu, 1>(s, rows, weights, bias, f, left, y + place, won);
    }
  }
}

double sum_of_lanes(Floats x) {
  float lanes[kLanes];
  store_all(lanes, x);
  double sum = 0;
  for (const float lane : lanes) sum += static_cast<double>(lane);
  return sum;
}

/// What some images give to the gradient of one filter's weights for one channel.
template <int kTaps, class T>
void backward_of_filter(const ConvPool& s, const float* halves, int64_t images, const T* grad_y, const uint8_t* winners,
                        double* sums, double* bias) {
  Floats of_tap[kTaps * kTaps] = {};
  Floats of_bias{};
  const int64_t of_image = s.filters * s.out_height * s.out_width;
  for (int64_t n = 0; n < images; ++n) {
    const int64_t plane = s.out_height * s.out_width, ahead = (n + 1) * of_image;
    fetch(grad_y + ahead, plane * static_cast<int64_t>(sizeof(T)));
    fetch(winners + ahead, plane);
    for (int64_t row = 0; row < s.out_height; ++row) {
      for (int64_t w = 0; w < s.out_width; w += kLanes) {
        const int64_t place = n * of_image + row * s.out_width + w, left = s.out_width - w;
        const Floats gradient = get<false>(grad_y + place, left);
        const Ints winner = load_bytes(winners + place, left);
        Points given;
        unrolled<4>([&](auto point) TRAINRUN_INLINE {
          given.at[point.value / 2][point.value % 2] = winner == all_of(point.value) ? gradient : Floats{};
        });
        if (bias != nullptr) of_bias = of_bias + (winner == all_of(kNoWinner) ? Floats{} : gradient);
        const float* const rows = halves + n * s.image_size() + 2 * row * s.row_size() + w;
        unrolled<kTaps + 1>([&](auto r) TRAINRUN_INLINE {
          unrolled<kTaps + 1>([&](auto c) TRAINRUN_INLINE {
            const Floats x = column_of(rows + r * s.row_size(), s.half_size(), c);
            unrolled<4>([&](auto point) TRAINRUN_INLINE {
              constexpr int i = point.value / 2, j = point.value % 2, down = r.value - i, right = c.value - j;
              if constexpr (down >= 0 && down < kTaps && right >= 0 && right < kTaps) {
                Floats& sum = of_tap[down * kTaps + right];
                sum = multiplied_sum(x, given.at[i][j], sum);
              }
            });
          });
        });
      }
    }
  }
  for (int t = 0; t < kTaps * kTaps; ++t) sums[t] += sum_of_lanes(of_tap[t]);
  if (bias != nullptr) *bias += sum_of_lanes(of_bias);
}

template <class Call>
inline void with_taps(int64_t taps, const Call& call) {
  if (taps == 3) call(Constant<3>{});
  if (taps == 5) call(Constant<5>{});
}

}  // namespace

void conv_pool_halves(const ConvPool& s, const void* image, float* to) {
  with_type(s.is_bfloat16, [&](auto type) {
    const auto* const from = static_cast<const decltype(type)*>(image);
    for (int64_t c = 0; c < s.channels; ++c) {
      for (int64_t row = 0; row < s.rows(); ++row) {
        float* const at = to + (c * s.rows() + row) * s.row_size();
        for (int64_t j = 0; j < s.row_size(); ++j) at[j] = 0;
        const int64_t y = row - s.padding;
        if (y < 0 || y >= s.height) continue;
        const auto* const pixels = from + (c * s.height + y) * s.width;
        const int64_t used = lesser(s.width, 2 * s.half_size() - s.padding);
        float* const first = at + s.padding % 2 * s.half_size() + s.padding / 2;
        float* const second = at + (s.padding + 1) % 2 * s.half_size() + (s.padding + 1) / 2;
        for (int64_t x = 0; x < used; x += 2 * int64_t{kLanes}) {
          const int64_t left = used - x;
          const Floats low = get<false>(pixels + x, left), high = get<false>(pixels + x + kLanes, left - kLanes);
          store(first + x / 2, in_order(evens(low, high)), (left + 1) / 2);
          store(second + x / 2, in_order(odds(low, high)), left / 2);
        }
      }
    }
  });
}

void conv_pool_forward(const ConvPool& s, const float* halves, const float* weights, const float* bias, void* y,
                       uint8_t* winners) {
  with_type(s.is_bfloat16, [&](auto type) {
    auto* const to = static_cast<decltype(type)*>(y);
    with_taps(s.taps, [&](auto taps) {
      if (s.has_relu) {
        forward<taps.value, true>(s, halves, weights, bias, to, winners);
      } else {
        forward<taps.value, false>(s, halves, weights, bias, to, winners);
      }
    });
  });
}

void conv_pool_backward(const ConvPool& s, const float* halves, int64_t images, const void* grad_y,
                        const uint8_t* winners, int64_t begin, int64_t end, double* sums, double* bias) {
  with_type(s.is_bfloat16, [&](auto type) {
    const auto* const gradient = static_cast<const decltype(type)*>(grad_y);
    with_taps(s.taps, [&](auto taps) {
      constexpr int64_t kOfChannel = taps.value * taps.value;
      for (int64_t f = begin; f < end; ++f) {
        const int64_t place = f * s.out_height * s.out_width;
        for (int64_t c = 0; c < s.channels; ++c) {
          backward_of_filter<taps.value>(s, halves + c * s.rows() * s.row_size(), images, gradient + place,
                                         winners + place, sums + (f * s.channels + c) * kOfChannel,
                                         c == 0 ? bias + f : nullptr);
        }
      }
    });
  });
}

}  // namespace trainrun::kernels::TRAINRUN_CPU_PATH
// NOLINTEND(modernize-avoid-c-arrays, readability-identifier-naming, readability-redundant-parentheses)
