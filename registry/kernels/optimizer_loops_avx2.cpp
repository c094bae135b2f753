#if defined(__x86_64__)

#include "registry/kernels/optimizer_loops.h"

namespace trainrun::kernels {
namespace {

inline float fused(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
inline double fused(double a, double b, double c) { return __builtin_fma(a, b, c); }
inline float root_of(float x) { return __builtin_sqrtf(x); }
inline double root_of(double x) { return __builtin_sqrt(x); }

/// The elements before this one are ATen's full vectors of 32 bytes.
template <class T>
int64_t end_of_vectors(int64_t size) {
  return size - size % static_cast<int64_t>(32 / sizeof(T));
}

/// `kVectors`: of the elements that ATen computes in vectors; others come last in their tensor.
template <class T, bool kVectors, bool kDecays, bool kAmsgrad>
void adam_part(const Stretch<AdamNumbers>& stretch, int64_t begin, int64_t end) {
  const AdamNumbers& n = stretch.numbers;
  T* __restrict parameter = static_cast<T*>(stretch.parameter);
  const T* __restrict gradient = static_cast<const T*>(stretch.gradient);
  T* __restrict means = static_cast<T*>(stretch.state[0]);
  T* __restrict squares = static_cast<T*>(stretch.state[1]);
  T* __restrict largest = static_cast<T*>(stretch.state[2]);
  const T first = static_cast<T>(stretch.factors[0]), second = static_cast<T>(stretch.factors[1]);
  const T share = static_cast<T>(n.mean_share), square_share = static_cast<T>(n.square_share);
  const T beta2 = static_cast<T>(n.beta2), eps = static_cast<T>(n.eps), root = static_cast<T>(n.root);
  const T decay = static_cast<T>(n.weight_decay), kept = static_cast<T>(n.kept_weight);
  const T step_size = static_cast<T>(-n.step_size);
  const bool is_small = share < static_cast<T>(0.5);  // at::lerp starts from the nearer end
  const T weight = is_small ? share : share - static_cast<T>(1);
  for (int64_t i = begin; i < end; ++i) {
    T g = gradient[i] * first * second;
    if constexpr (kDecays) g = fused(parameter[i], decay, g);
    const T mean = fused(weight, g - means[i], is_small ? means[i] : g);
    const T square =
        kVectors ? fused(square_share * g, g, squares[i] * beta2) : fused(squares[i], beta2, square_share * g * g);
    means[i] = mean;
    squares[i] = square;
    T divisor = square;
    if constexpr (kAmsgrad) {
      const T old = largest[i];
      if constexpr (kVectors) {
        divisor = old >= square || old != old ? old : square;  // NaN stays
      } else {
        divisor = old < square ? square : old;
      }
      largest[i] = divisor;
    }
    parameter[i] = parameter[i] * kept + step_size * mean / (root_of(divisor) / root + eps);
  }
}

template <class T, bool kVectors, bool kDecays, bool kMomentum>
void sgd_part(const Stretch<SgdNumbers>& stretch, int64_t begin, int64_t end) {
  const SgdNumbers& n = stretch.numbers;
  T* __restrict parameter = static_cast<T*>(stretch.parameter);
  const T* __restrict gradient = static_cast<const T*>(stretch.gradient);
  T* __restrict buffer = static_cast<T*>(stretch.state[0]);
  const T first = static_cast<T>(stretch.factors[0]), second = static_cast<T>(stretch.factors[1]);
  const T decay = static_cast<T>(n.weight_decay), rate = static_cast<T>(-n.lr);
  const T momentum = static_cast<T>(n.momentum), share = static_cast<T>(n.share);
  const bool begins = n.begins, nesterov = n.nesterov;
  for (int64_t i = begin; i < end; ++i) {
    T g = gradient[i] * first * second;
    if constexpr (kDecays) g = fused(parameter[i], decay, g);
    if constexpr (kMomentum) {
      const T old = buffer[i];
      const T going = kVectors ? fused(g, share, old * momentum) : fused(old, momentum, g * share);
      const T now = begins ? g : going;
      buffer[i] = now;
      g = nesterov ? fused(now, momentum, g) : now;
    }
    parameter[i] = fused(g, rate, parameter[i]);
  }
}

}  // namespace

template <class T>
void adam_avx2(const Stretch<AdamNumbers>& stretch, int64_t begin, int64_t end) {
  const int64_t vectors = end_of_vectors<T>(stretch.size);
  const auto part = [&]<bool kDecays, bool kAmsgrad>() {
    adam_part<T, true, kDecays, kAmsgrad>(stretch, begin, end < vectors ? end : vectors);
    adam_part<T, false, kDecays, kAmsgrad>(stretch, begin < vectors ? vectors : begin, end);
  };
  const bool decays = stretch.numbers.weight_decay != 0;
  if (stretch.numbers.amsgrad)
    return decays ? part.template operator()<true, true>() : part.template operator()<false, true>();
  return decays ? part.template operator()<true, false>() : part.template operator()<false, false>();
}

template <class T>
void sgd_avx2(const Stretch<SgdNumbers>& stretch, int64_t begin, int64_t end) {
  const int64_t vectors = end_of_vectors<T>(stretch.size);
  const auto part = [&]<bool kDecays, bool kMomentum>() {
    sgd_part<T, true, kDecays, kMomentum>(stretch, begin, end < vectors ? end : vectors);
    sgd_part<T, false, kDecays, kMomentum>(stretch, begin < vectors ? vectors : begin, end);
  };
  const bool decays = stretch.numbers.weight_decay != 0;
  if (stretch.numbers.momentum != 0)
    return decays ? part.template operator()<true, true>() : part.template operator()<false, true>();
  return decays ? part.template operator()<true, false>() : part.template operator()<false, false>();
}

template void adam_avx2<float>(const Stretch<AdamNumbers>&, int64_t, int64_t);
template void adam_avx2<double>(const Stretch<AdamNumbers>&, int64_t, int64_t);
template void sgd_avx2<float>(const Stretch<SgdNumbers>&, int64_t, int64_t);
template void sgd_avx2<double>(const Stretch<SgdNumbers>&, int64_t, int64_t);

}  // namespace trainrun::kernels

#endif
