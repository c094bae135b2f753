#include "registry/kernels/batch_norm_simd.h"

#include "registry/kernels/small_products.h"
#include "registry/kernels/stored_floats.h"
#include "registry/kernels/vectors.h"

// NOLINTBEGIN(modernize-avoid-c-arrays, readability-identifier-naming, readability-redundant-parentheses): see README.md

// Rows are read in the order of memory, some at a time, so that what is known of each channel is loaded once for all of
// them. Sums of a few rows are float32, those of all rows float64.

namespace trainrun::kernels::TRAINRUN_CPU_PATH {
namespace {

constexpr int kRowsTogether = 4;
constexpr int64_t kRowsOfSum = 64;        // a multiple of kRowsTogether
constexpr int64_t kChannelsOfSum = 1024;  // sums of as many lie in the L1 cache

/// Calls call(first channel, all) for kLanes channels of [begin, end) at a time; `all` is false for the last few.
template <class Call>
TRAINRUN_INLINE inline void each_lanes(int64_t begin, int64_t end, const Call& call) {
  int64_t c = begin;
  for (; c + kLanes <= end; c += kLanes) call(c, Constant<1>{});
  if (c < end) call(c, Constant<0>{});
}

/// Calls call(first row, Constant<rows>) for a few rows of [begin, end) at a time.
template <class Call>
TRAINRUN_INLINE inline void each_rows(int64_t begin, int64_t end, const Call& call) {
  int64_t row = begin;
  for (; row + kRowsTogether <= end; row += kRowsTogether) call(row, Constant<kRowsTogether>{});
  for (; row < end; ++row) call(row, Constant<1>{});
}

/// Two sums of each channel, of float32 for some rows, and then added to those of float64.
struct PairOfSums {
  alignas(64) float first[kChannelsOfSum];
  alignas(64) float second[kChannelsOfSum];

  void clear(int64_t channels) {
    const auto size = static_cast<std::size_t>(rounded_up(channels, kLanes)) * sizeof(float);
    __builtin_memset(first, 0, size);
    __builtin_memset(second, 0, size);
  }
  void add_to(double* sums, double* others, int64_t begin, int64_t end) {
    for (int64_t c = begin; c < end; ++c) {
      sums[c] += static_cast<double>(first[c - begin]);
      others[c] += static_cast<double>(second[c - begin]);
    }
  }
};

/// Calls add(place of a number, channel, all, first, second) for kLanes numbers of a row at a time, which adds to two sums
/// of these channels.
template <class Add>
TRAINRUN_INLINE inline void sum_up(const NormRows& shape, double* sums, double* others, const Add& add) {
  PairOfSums of_rows;
  for (int64_t begin = 0; begin < shape.channels; begin += kChannelsOfSum) {
    const int64_t end = lesser(begin + kChannelsOfSum, shape.channels);
    for (int64_t first = 0; first < shape.rows; first += kRowsOfSum) {
      of_rows.clear(end - begin);
      each_rows(first, lesser(first + kRowsOfSum, shape.rows), [&](int64_t row, auto count) TRAINRUN_INLINE {
        each_lanes(begin, end, [&](int64_t c, auto all) TRAINRUN_INLINE {
          float* const at = of_rows.first + (c - begin);
          float* const other = of_rows.second + (c - begin);
          Floats a = load_all(at);
          Floats b = load_all(other);
          unrolled<count.value>([&](auto i) TRAINRUN_INLINE { add((row + i) * shape.channels + c, c, all, &a, &b); });
          store_all(at, a);
          store_all(other, b);
        });
      });
      of_rows.add_to(sums, others, begin, end);
    }
  }
}

/// Calls call(place of a number, channel, all) for kLanes numbers of a row at a time.
template <class Call>
TRAINRUN_INLINE inline void each_number(const NormRows& shape, const Call& call) {
  for (int64_t row = 0; row < shape.rows; ++row) {
    each_lanes(0, shape.channels, [&](int64_t c, auto all) TRAINRUN_INLINE { call(row * shape.channels + c, c, all); });
  }
}

/// x of kLanes channels, normalized.
template <bool kAll>
TRAINRUN_INLINE inline Floats normalized(Floats apart, const NormScale& by, int64_t c, int64_t count) {
  return multiplied_sum(apart, get<kAll>(by.scale + c, count), get<kAll>(by.bias + c, count));
}

/// Calls call(Constant<the mask>).
template <class Call>
void with_mask(NormMask mask, const Call& call) {
  if (mask == NormMask::kNone) call(Constant<static_cast<int>(NormMask::kNone)>{});
  if (mask == NormMask::kRead) call(Constant<static_cast<int>(NormMask::kRead)>{});
  if (mask == NormMask::kComputed) call(Constant<static_cast<int>(NormMask::kComputed)>{});
}

/// g where y is above 0 or is not a number, else 0.
TRAINRUN_INLINE inline Floats passed(Floats y, Floats g) { return y <= all_of(0.0F) ? all_of(0.0F) : g; }

}  // namespace

void norm_sums(const NormRows& shape, const void* x, const float* center, double* sums, double* squares) {
  with_type(shape.is_bfloat16, [&](auto type) {
    const auto* const from = static_cast<const decltype(type)*>(x);
    sum_up(shape, sums, squares, [&](int64_t place, int64_t c, auto all, Floats* sum, Floats* square) TRAINRUN_INLINE {
      constexpr bool kAll = all.value != 0;
      const int64_t count = shape.channels - c;
      const Floats apart = get<kAll>(from + place, count) - get<kAll>(center + c, count);
      *sum = *sum + apart;
      *square = multiplied_sum(apart, apart, *square);
    });
  });
}

void norm_output(const NormRows& shape, const void* x, const void* added, const NormScale& by, bool has_relu, void* y) {
  with_type(shape.is_bfloat16, [&](auto type) {
    using Type = decltype(type);
    const auto* const from = static_cast<const Type*>(x);
    const auto* const other = static_cast<const Type*>(added);
    auto* const to = static_cast<Type*>(y);
    const auto compute = [&](auto adds, auto relu) {
      each_number(shape, [&](int64_t place, int64_t c, auto all) TRAINRUN_INLINE {
        constexpr bool kAll = all.value != 0;
        const int64_t count = shape.channels - c;
        const Floats apart = get<kAll>(from + place, count) - get<kAll>(by.mean + c, count);
        Floats result = normalized<kAll>(apart, by, c, count);
        if constexpr (adds.value != 0) result = result + get<kAll>(other + place, count);
        if constexpr (relu.value != 0) result = larger(all_of(0.0F), result);
        put<kAll>(to + place, result, count);
      });
    };
    if (!has_relu) {
      compute(Constant<0>{}, Constant<0>{});
    } else if (other == nullptr) {
      compute(Constant<0>{}, Constant<1>{});
    } else {
      compute(Constant<1>{}, Constant<1>{});
    }
  });
}

void norm_gradient_sums(const NormRows& shape, NormMask mask, const void* x, const void* y, const NormScale& by,
                        const void* g, void* masked, double* sums, double* products) {
  with_type(shape.is_bfloat16, [&](auto type) {
    using Type = decltype(type);
    const auto* const from = static_cast<const Type*>(x);
    const auto* const result = static_cast<const Type*>(y);
    const auto* const gradient = static_cast<const Type*>(g);
    auto* const to = static_cast<Type*>(masked);
    const auto compute = [&](auto own) {
      constexpr auto kMask = static_cast<NormMask>(own.value);
      sum_up(shape, sums, products,
             [&](int64_t place, int64_t c, auto all, Floats* sum, Floats* product) TRAINRUN_INLINE {
               constexpr bool kAll = all.value != 0;
               const int64_t count = shape.channels - c;
               const Floats apart = get<kAll>(from + place, count) - get<kAll>(by.mean + c, count);
               Floats given = get<kAll>(gradient + place, count);
               if constexpr (kMask == NormMask::kRead) {
                 given = passed(get<kAll>(result + place, count), given);
                 put<kAll>(to + place, given, count);
               } else if constexpr (kMask == NormMask::kComputed) {
                 given = passed(normalized<kAll>(apart, by, c, count), given);
               }
               *sum = *sum + given;
               *product = multiplied_sum(given, apart, *product);
             });
    };
    with_mask(mask, compute);
  });
}

void norm_gradient(const NormRows& shape, NormMask mask, const void* x, const void* g, const NormScale& by,
                   const NormGradient& gradient, void* to) {
  with_type(shape.is_bfloat16, [&](auto type) {
    using Type = decltype(type);
    const auto* const from = static_cast<const Type*>(x);
    const auto* const given = static_cast<const Type*>(g);
    auto* const out = static_cast<Type*>(to);
    const auto compute = [&](auto own) {
      each_number(shape, [&](int64_t place, int64_t c, auto all) TRAINRUN_INLINE {
        constexpr bool kAll = all.value != 0;
        const int64_t count = shape.channels - c;
        const Floats apart = get<kAll>(from + place, count) - get<kAll>(by.mean + c, count);
        Floats of_place = get<kAll>(given + place, count);
        if constexpr (static_cast<NormMask>(own.value) == NormMask::kComputed) {
          of_place = passed(normalized<kAll>(apart, by, c, count), of_place);
        }
        const Floats rest =
            multiplied_sum(apart, get<kAll>(gradient.of_x + c, count), get<kAll>(gradient.rest + c, count));
        put<kAll>(out + place, multiplied_sum(of_place, get<kAll>(by.scale + c, count), rest), count);
      });
    };
    with_mask(mask == NormMask::kComputed ? mask : NormMask::kNone, compute);
  });
}

}  // namespace trainrun::kernels::TRAINRUN_CPU_PATH
// NOLINTEND(modernize-avoid-c-arrays, readability-identifier-naming, readability-redundant-parentheses)
