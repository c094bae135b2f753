#include "registry/kernels/rank_sums_simd.h"

#include "registry/kernels/bfloat16.h"

namespace trainrun::kernels::TRAINRUN_CPU_PATH {
namespace {

constexpr int64_t kBlock = 512;  // numbers added at a time: they stay in the first cache

/// Numbers that are added as they are.
template <class T>
struct Plain {
  using Stored = T;
  using Sum = T;
  static T widen(T value) { return value; }
  static T narrow(T value) { return value; }
};

/// Integers wrap around, as ATen's do.
template <class T, class Unsigned>
struct Whole {
  using Stored = T;
  using Sum = Unsigned;
  static Unsigned widen(T value) { return static_cast<Unsigned>(value); }
  static T narrow(Unsigned value) { return static_cast<T>(value); }
};

struct BFloat16 {
  using Stored = uint16_t;
  using Sum = float;
  static float widen(uint16_t value) { return __builtin_bit_cast(float, static_cast<uint32_t>(value) << 16); }
  static uint16_t narrow(float value) { return static_cast<uint16_t>(bfloat16_bits<uint32_t>(value)); }
};

/// Source: Maratyszcza's FP16, without branches, as in c10/util/Half.h.
struct Float16 {
  using Stored = uint16_t;
  using Sum = float;
  static float widen(uint16_t value) {
    const uint32_t bits = static_cast<uint32_t>(value) << 16;
    const uint32_t doubled = bits + bits;
    const float normal = __builtin_bit_cast(float, (doubled >> 4) + (0xe0U << 23)) * 0x1.0p-112F;
    const float subnormal = __builtin_bit_cast(float, (doubled >> 17) | (126U << 23)) - 0.5F;
    const uint32_t magnitude = doubled < (1U << 27) ? __builtin_bit_cast(uint32_t, subnormal)  //
                                                    : __builtin_bit_cast(uint32_t, normal);
    return __builtin_bit_cast(float, (bits & 0x80000000U) | magnitude);
  }
  static uint16_t narrow(float value) {
    const auto bits = __builtin_bit_cast(uint32_t, value);
    const uint32_t doubled = bits + bits;
    const float magnitude = __builtin_bit_cast(float, bits & 0x7fffffffU);
    const uint32_t exponent = doubled & 0xff000000U;
    const uint32_t bias = exponent < 0x71000000U ? 0x71000000U : exponent;
    const float base = magnitude * 0x1.0p+112F * 0x1.0p-110F;  // beyond the greatest: infinity
    const auto sum = __builtin_bit_cast(uint32_t, __builtin_bit_cast(float, (bias >> 1) + 0x07800000U) + base);
    const uint32_t rounded = ((sum >> 13) & 0x7c00U) + (sum & 0xfffU);
    return static_cast<uint16_t>(((bits & 0x80000000U) >> 16) | (doubled > 0xff000000U ? 0x7e00U : rounded));
  }
};

template <class Form>
inline void load(const void* from, int64_t begin, int64_t count, typename Form::Sum* to) {
  const auto* values = static_cast<const typename Form::Stored*>(from) + begin;
  for (int64_t i = 0; i < count; ++i) to[i] = Form::widen(values[i]);
}

/// By a power of two it is a product, which rounds alike and takes less time. The quotients are stored before they are
/// added, so that no product is rounded together with a sum.
template <class Form>
inline void divide(typename Form::Sum* values, int64_t count, typename Form::Sum divisor, bool by_product) {
  const typename Form::Sum factor = 1 / divisor;
  if (by_product) {
    for (int64_t i = 0; i < count; ++i) values[i] = Form::widen(Form::narrow(values[i] * factor));
  } else {
    for (int64_t i = 0; i < count; ++i) values[i] = Form::widen(Form::narrow(values[i] / divisor));
  }
}

bool is_power_of_two(double value) { return (__builtin_bit_cast(uint64_t, value) & ((uint64_t{1} << 52) - 1)) == 0; }

template <class Form>
void add_as(const RankStretches& ranks, double divisor) {
  using Sum = typename Form::Sum;
  using Stored = typename Form::Stored;
  constexpr bool kIsWhole = static_cast<Sum>(0.5) == 0;
  const bool divides = !kIsWhole && divisor != 1;
  const bool by_product = is_power_of_two(divisor);
  alignas(64) Sum sum[kBlock];  // NOLINT(modernize-avoid-c-arrays): see README.md
  alignas(64) Sum own[kBlock];  // NOLINT(modernize-avoid-c-arrays)
  for (int64_t begin = 0; begin < ranks.count; begin += kBlock) {
    const int64_t count = ranks.count - begin < kBlock ? ranks.count - begin : kBlock;
    load<Form>(ranks.from[0], begin, count, sum);
    if (divides) divide<Form>(sum, count, static_cast<Sum>(divisor), by_product);
    for (int64_t r = 1; r < ranks.num_from; ++r) {
      load<Form>(ranks.from[r], begin, count, own);
      if (divides) divide<Form>(own, count, static_cast<Sum>(divisor), by_product);
      for (int64_t i = 0; i < count; ++i) sum[i] = static_cast<Sum>(sum[i] + own[i]);
    }
    for (int64_t k = 0; k < ranks.num_to; ++k) {
      auto* to = static_cast<Stored*>(ranks.to[k]) + begin;
      for (int64_t i = 0; i < count; ++i) to[i] = Form::narrow(sum[i]);
    }
  }
}

}  // namespace

void add_ranks(NumberType type, const RankStretches& ranks, double divisor) {
  switch (type) {
    case NumberType::kFloat32:
      return add_as<Plain<float>>(ranks, divisor);
    case NumberType::kFloat64:
      return add_as<Plain<double>>(ranks, divisor);
    case NumberType::kBFloat16:
      return add_as<BFloat16>(ranks, divisor);
    case NumberType::kFloat16:
      return add_as<Float16>(ranks, divisor);
    case NumberType::kInt64:
      return add_as<Whole<int64_t, uint64_t>>(ranks, divisor);
    case NumberType::kInt32:
      return add_as<Whole<int32_t, uint32_t>>(ranks, divisor);
    case NumberType::kInt8:
      return add_as<Whole<int8_t, uint8_t>>(ranks, divisor);
    case NumberType::kUInt8:
      return add_as<Whole<uint8_t, uint8_t>>(ranks, divisor);
  }
}

}  // namespace trainrun::kernels::TRAINRUN_CPU_PATH
