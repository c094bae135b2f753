#include "registry/kernels/activation_simd.h"

#include "registry/kernels/row_math.h"

// NOLINTBEGIN(readability-identifier-naming): see README.md

namespace trainrun::kernels::TRAINRUN_CPU_PATH {
namespace {

/// Of numbers between 1 and 1e37.
TRAINRUN_INLINE inline Floats reciprocal(Floats x) {
#if defined(__AVX512F__)
  const Floats near = _mm512_rcp14_ps(x);  // and a step of Newton's: a division takes longer
  return multiplied_sum(near, multiplied_sum(-x, near, all_of(1.0F)), near);
#else
  return all_of(1.0F) / x;
#endif
}

/// 2 to the power of x <= 127, right to 8e-8 of it, or to 8e-5 if not `kExact`; 0 below -126. Of NaN anything.
template <bool kExact>
TRAINRUN_INLINE inline Floats power_of_two(Floats x) {
  constexpr float kRounding = 12582912;  // 1.5 * 2^23: what is added to it is rounded to a whole number
  const Floats shifted = x + all_of(kRounding);
  const Floats rest = x - (shifted - all_of(kRounding));
  Floats power{};
  if (kExact) {
    power = multiplied_sum(all_of(0.00132764707F), rest, all_of(0.00967554132F));
    power = multiplied_sum(power, rest, all_of(0.0555071328F));
    power = multiplied_sum(power, rest, all_of(0.240221197F));
    power = multiplied_sum(power, rest, all_of(0.693146967F));
    power = multiplied_sum(power, rest, all_of(1.00000007F));
  } else {
    power = multiplied_sum(all_of(0.0551716577F), rest, all_of(0.242611121F));
    power = multiplied_sum(power, rest, all_of(0.693260988F));
    power = multiplied_sum(power, rest, all_of(0.999928074F));
  }
  const Ints exponent = reinterpret_cast<Ints>(shifted) << 23;  // the lowest bits of `shifted` are the whole number
  const Floats result = reinterpret_cast<Floats>(reinterpret_cast<Ints>(power) + exponent);
  return x < all_of(-126.0F) ? Floats{} : result;
}
constexpr float kLog2E = 1.44269504F;

/// The normal distribution function of x, and e^(-x^2 / 2). If `kExact` right to 3e-7, and to 5e-7 of it where |x| < 3;
/// else to 2e-4 of it, a tenth of what a bfloat16 can tell apart.
template <bool kExact>
struct Normal {
  Floats below, bell;

  /// With z = |x| / sqrt(2), erfc(z) e^(z^2) is t times a polynomial in t = 1 / (1 + p z), as Abramowitz and Stegun
  /// 1964, 7.1.26 have it; these have relative errors of 8e-8 and 3e-5 up to z = 9.
  TRAINRUN_INLINE explicit Normal(Floats x) : bell(power_of_two<kExact>(x * x * all_of(-0.5F * kLog2E))) {
    constexpr float kSlope = kExact ? 0.233345238F : 0.374766594F;  // p / sqrt(2)
    const Floats size = -larger(-larger(x, -x), all_of(-1e10F));
    const Floats t = reciprocal(multiplied_sum(size, all_of(kSlope), all_of(1.0F)));
    Floats p{};  // half of the polynomial
    if (kExact) {
      p = multiplied_sum(all_of(0.5F * -0.135928853F), t, all_of(0.5F * 0.462688463F));
      p = multiplied_sum(p, t, all_of(0.5F * -0.355439344F));
      p = multiplied_sum(p, t, all_of(0.5F * 0.412541978F));
      p = multiplied_sum(p, t, all_of(0.5F * 0.0450104489F));
      p = multiplied_sum(p, t, all_of(0.5F * 0.201923883F));
      p = multiplied_sum(p, t, all_of(0.5F * 0.182837233F));
      p = multiplied_sum(p, t, all_of(0.5F * 0.18636611F));
    } else {
      p = multiplied_sum(all_of(0.5F * -0.182579367F), t, all_of(0.5F * 0.404389868F));
      p = multiplied_sum(p, t, all_of(0.5F * 0.164175419F));
      p = multiplied_sum(p, t, all_of(0.5F * 0.316149238F));
      p = multiplied_sum(p, t, all_of(0.5F * 0.297845323F));
    }
    const Floats tail = p * t * bell;
    below = x < Floats{} ? tail : all_of(1.0F) - tail;
  }
};

constexpr float kTanhScale = 1.59576912F;  // 2 sqrt(2 / pi)
constexpr float kTanhCube = 0.044715F;

/// (1 + tanh(u)) / 2 for u = sqrt(2 / pi) (x + 0.044715 x^3).
template <bool kExact>
TRAINRUN_INLINE inline Floats tanh_share(Floats x) {
  constexpr float kScale = kTanhScale * kLog2E;
  const Floats twice = x * multiplied_sum(x * x, all_of(kTanhCube * kScale), all_of(kScale));
  return reciprocal(all_of(1.0F) + power_of_two<kExact>(-larger(all_of(-122.0F), twice)));
}

template <LoopActivation kFunction, bool kExact>
TRAINRUN_INLINE inline Floats value_of(Floats x) {
  if (kFunction == LoopActivation::kRelu) return x < Floats{} ? Floats{} : x;
  if (kFunction == LoopActivation::kGelu) return x * Normal<kExact>(x).below;
  if (kFunction == LoopActivation::kGeluTanh) return x * tanh_share<kExact>(x);
  return x;
}

template <LoopActivation kFunction, bool kExact>
TRAINRUN_INLINE inline Floats slope_of(Floats x) {
  if (kFunction == LoopActivation::kGelu) {
    constexpr float kRoot = 0.398942280F;  // 1 / sqrt(2 pi)
    const Normal<kExact> normal(x);
    return multiplied_sum(x * all_of(kRoot), normal.bell, normal.below);
  }
  const Floats share = tanh_share<kExact>(x);
  const Floats inner = multiplied_sum(x * x, all_of(3 * kTanhCube * kTanhScale), all_of(kTanhScale));
  return multiplied_sum(x * share * (all_of(1.0F) - share), inner, share);
}

template <LoopActivation kFunction, bool kExact>
TRAINRUN_INLINE inline Floats gradient_of(Floats x, Floats grad_y) {
  if (kFunction == LoopActivation::kNone) return grad_y;
  if (kFunction == LoopActivation::kRelu) return x <= Floats{} ? Floats{} : grad_y;
  return grad_y * slope_of<kFunction, kExact>(x);
}

template <class T>
constexpr bool kIsExact = sizeof(T) == sizeof(float);

template <LoopActivation kFunction, class T>
void activate_numbers(const T* x, T* y, int64_t count) {
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes)
    put<true>(y + i, value_of<kFunction, kIsExact<T>>(get<true>(x + i, kLanes)), kLanes);
  if (i < count) put<false>(y + i, value_of<kFunction, kIsExact<T>>(get<false>(x + i, count - i)), count - i);
}

template <bool kAll, LoopActivation kFunction, class T>
TRAINRUN_INLINE inline void back(const T* x, const T* grad_y, T* grad_x, float* grad_bias, int64_t count) {
  Floats g = get<kAll>(grad_y, count);
  if (kFunction != LoopActivation::kNone) {
    g = gradient_of<kFunction, kIsExact<T>>(get<kAll>(x, count), g);
    put<kAll>(grad_x, g, count);
  }
  if (grad_bias != nullptr) put<kAll>(grad_bias, g + get<kAll>(grad_bias, count), count);
}

template <LoopActivation kFunction, class T>
void back_of_row(const T* x, const T* grad_y, T* grad_x, float* grad_bias, int64_t count) {
  const auto bias = [&](int64_t i) { return grad_bias == nullptr ? nullptr : grad_bias + i; };
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) back<true, kFunction>(x + i, grad_y + i, grad_x + i, bias(i), kLanes);
  if (i < count) back<false, kFunction>(x + i, grad_y + i, grad_x + i, bias(i), count - i);
}

template <LoopActivation kFunction>
struct Function {
  static constexpr LoopActivation value = kFunction;
};

template <class Call>
void with_function(LoopActivation function, const Call& call) {
  if (function == LoopActivation::kNone) call(Function<LoopActivation::kNone>{});
  if (function == LoopActivation::kRelu) call(Function<LoopActivation::kRelu>{});
  if (function == LoopActivation::kGelu) call(Function<LoopActivation::kGelu>{});
  if (function == LoopActivation::kGeluTanh) call(Function<LoopActivation::kGeluTanh>{});
}

template <class T>
void activate_as(const ActivationShape& s, const void* x, void* y, int64_t begin, int64_t end) {
  const int64_t first = begin * s.features, count = (end - begin) * s.features;
  with_function(s.function, [&](auto function) {
    activate_numbers<decltype(function)::value>(static_cast<const T*>(x) + first, static_cast<T*>(y) + first, count);
  });
}

template <class T>
void activate_back_as(const ActivationShape& s, const void* x, const void* grad_y, void* grad_x, float* grad_bias,
                      int64_t begin, int64_t end) {
  with_function(s.function, [&](auto function) {
    for (int64_t first = begin * s.features; first < end * s.features; first += s.features) {
      back_of_row<decltype(function)::value>(static_cast<const T*>(x) + first, static_cast<const T*>(grad_y) + first,
                                             static_cast<T*>(grad_x) + first, grad_bias, s.features);
    }
  });
}

}  // namespace

void activate(const ActivationShape& shape, const void* x, void* y, int64_t begin, int64_t end) {
  (shape.is_bfloat16 ? activate_as<Bfloat16> : activate_as<float>)(shape, x, y, begin, end);
}

void activate_back(const ActivationShape& shape, const void* x, const void* grad_y, void* grad_x, float* grad_bias,
                   int64_t begin, int64_t end) {
  (shape.is_bfloat16 ? activate_back_as<Bfloat16> : activate_back_as<float>)(shape, x, grad_y, grad_x, grad_bias, begin,
                                                                             end);
}

}  // namespace trainrun::kernels::TRAINRUN_CPU_PATH
// NOLINTEND(readability-identifier-naming)
