#include "registry/kernels/optimizer_simd.h"

// Each optimizer is a struct of what is done to one element: `g`, the gradient to descend along; `w`, the weight; x, y, z,
// its state; r, s, square roots. Which product is rounded together with its sum is written here, and nothing the compiler
// may choose (CMakeLists.txt).

namespace trainrun::kernels::TRAINRUN_CPU_PATH {
namespace {

/// a * b + c, rounded once where the instructions can, as in ATen's kernels for them.
#if defined(__FMA__) || defined(__AVX512F__)
inline float fused(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
inline double fused(double a, double b, double c) { return __builtin_fma(a, b, c); }
#else
template <class T>
inline T fused(T a, T b, T c) {
  return a * b + c;
}
#endif

inline float nearest_root(float x) { return __builtin_sqrtf(x); }
inline double nearest_root(double x) { return __builtin_sqrt(x); }
inline float size_of(float x) { return __builtin_fabsf(x); }
inline double size_of(double x) { return __builtin_fabs(x); }

/// Which state lists an optimizer has.
constexpr int kX = 1, kY = 2, kZ = 4;

/// 0 for NaN.
template <class T>
inline T sign_of(T x) {
  return (x > 0 ? T{1} : T{0}) - (x < 0 ? T{1} : T{0});
}

/// at::lerp, which starts from the nearer end.
template <class T>
struct Lerp {
  explicit Lerp(double share)
      : is_small(static_cast<T>(share) < static_cast<T>(0.5)),
        weight(is_small ? static_cast<T>(share) : static_cast<T>(share) - 1) {}
  T operator()(T from, T to) const { return fused(weight, to - from, is_small ? from : to); }
  bool is_small;
  T weight;
};

/// A mean of squares: at::mul by `kept`, then at::addcmul.
template <class T>
struct MeanSquare {
  explicit MeanSquare(double decay) : kept(static_cast<T>(decay)), share(static_cast<T>(1 - decay)) {}
  T operator()(T mean, T value) const { return fused(share * value, value, mean * kept); }
  T kept, share;
};

template <class T, class Numbers>
struct Step;

template <class T>
struct Step<T, AdagradNumbers> {
  static constexpr int kLists = kX;
  explicit Step(const AdagradNumbers& n) : rate(static_cast<T>(n.rate)), eps(static_cast<T>(n.eps)) {}
  /// ATen's fused kernel takes roots by instructions.
  void change(T g, T& w, T& x, T&, T&) const {
    x = fused(g, g, x);
    w -= rate * g / (nearest_root(x) + eps);
  }
  T rate, eps;
};

template <class T>
struct Step<T, AdamaxNumbers> {
  static constexpr int kLists = kX | kY;
  explicit Step(const AdamaxNumbers& n)
      : mean(n.mean_share), beta2(static_cast<T>(n.beta2)), eps(static_cast<T>(n.eps)), rate(static_cast<T>(n.rate)) {}
  void change(T g, T& w, T& x, T& y, T&) const {
    x = mean(x, g);
    const T old = y * beta2;
    const T now = size_of(g) + eps;
    y = old >= now || old != old ? old : now;  // NaN stays
    w += rate * x / y;
  }
  Lerp<T> mean;
  T beta2, eps, rate;
};

template <class T>
struct Step<T, LionNumbers> {
  static constexpr int kLists = kX;
  explicit Step(const LionNumbers& n) : step(n.step_share), mean(n.mean_share), rate(static_cast<T>(-n.lr)) {}
  void change(T g, T& w, T& x, T&, T&) const {
    w = fused(sign_of(step(x, g)), rate, w);
    x = mean(x, g);
  }
  Lerp<T> step, mean;
  T rate;
};

template <class T>
struct Step<T, ASGDNumbers> {
  static constexpr int kLists = kX;
  explicit Step(const ASGDNumbers& n)
      : lambd(static_cast<T>(n.lambd)), eta(static_cast<T>(n.eta)), mu(static_cast<T>(n.mu)) {}
  void change(T g, T& w, T& x, T&, T&) const {
    w = fused(-fused(w, lambd, g), eta, w);
    x = fused(w - x, mu, x);
  }
  T lambd, eta, mu;
};

template <class T>
struct Step<T, RpropNumbers> {
  static constexpr int kLists = kX | kY;
  explicit Step(const RpropNumbers& n)
      : shorter(static_cast<T>(n.shorter)),
        longer(static_cast<T>(n.longer)),
        smallest(static_cast<T>(n.smallest)),
        largest(static_cast<T>(n.largest)) {}
  void change(T g, T& w, T& x, T& y, T&) const {
    const T turn = g * x;
    T size = y * (turn > 0 ? longer : turn < 0 ? shorter : T{1});
    size = size < smallest ? smallest : size;  // NaN stays
    y = size > largest ? largest : size;
    x = turn < 0 ? T{0} : g;
    w = fused(-sign_of(x), y, w);
  }
  T shorter, longer, smallest, largest;
};

// --- those that take square roots: `change` does what comes before them, and `finish` the rest

template <class T, bool kCentered, bool kMomentum>
struct RMSprop {
  static constexpr int kLists = kX | (kCentered ? kY : 0) | (kMomentum ? kZ : 0);
  static constexpr int kRoots = 1;
  explicit RMSprop(const RMSpropNumbers& n)
      : square(n.alpha),
        mean(1 - n.alpha),
        eps(static_cast<T>(n.eps)),
        momentum(static_cast<T>(n.momentum)),
        rate(static_cast<T>(-n.lr)) {}
  void change(T g, T& x, T& y, T&, T& r, T&) const {
    x = square(x, g);
    if constexpr (kCentered) y = mean(y, g);
    r = kCentered ? fused(-y, y, x) : x;
  }
  void finish(T g, T& w, T&, T&, T& z, T r, T) const {
    if constexpr (kMomentum) {
      z = z * momentum + g / (r + eps);
      w = fused(z, rate, w);
    } else {
      w += rate * g / (r + eps);
    }
  }
  MeanSquare<T> square;
  Lerp<T> mean;
  T eps, momentum, rate;
};

template <class T>
struct Step<T, AdadeltaNumbers> {
  static constexpr int kLists = kX | kY;
  static constexpr int kRoots = 2;
  explicit Step(const AdadeltaNumbers& n) : square(n.rho), eps(static_cast<T>(n.eps)), rate(static_cast<T>(-n.lr)) {}
  void change(T g, T& x, T& y, T&, T& r, T& s) const {
    x = square(x, g);
    r = x + eps;
    s = y + eps;
  }
  void finish(T g, T& w, T&, T& y, T&, T r, T s) const {
    const T delta = s / r * g;
    y = square(y, delta);
    w = fused(delta, rate, w);
  }
  MeanSquare<T> square;
  T eps, rate;
};

template <class T>
struct Step<T, NAdamNumbers> {
  static constexpr int kLists = kX | kY;
  static constexpr int kRoots = 1;
  explicit Step(const NAdamNumbers& n)
      : mean(n.mean_share),
        square(n.beta2),
        eps(static_cast<T>(n.eps)),
        root(static_cast<T>(n.root)),
        gradient_rate(static_cast<T>(n.gradient_rate)),
        mean_rate(static_cast<T>(n.mean_rate)) {}
  void change(T g, T& x, T& y, T&, T& r, T&) const {
    x = mean(x, g);
    y = square(y, g);
    r = y;
  }
  void finish(T g, T& w, T& x, T&, T&, T r, T) const {
    const T divisor = r / root + eps;
    w += gradient_rate * g / divisor;
    w += mean_rate * x / divisor;
  }
  Lerp<T> mean;
  MeanSquare<T> square;
  T eps, root, gradient_rate, mean_rate;
};

template <class T>
struct Step<T, RAdamNumbers> {
  static constexpr int kLists = kX | kY;
  static constexpr int kRoots = 1;
  explicit Step(const RAdamNumbers& n)
      : mean(n.mean_share),
        square(n.beta2),
        eps(static_cast<T>(n.eps)),
        divisor(static_cast<T>(n.divisor)),
        added(static_cast<T>(n.added)) {}
  void change(T g, T& x, T& y, T&, T& r, T&) const {
    x = mean(x, g);
    y = square(y, g);
    r = y;
  }
  void finish(T, T& w, T& x, T&, T&, T r, T) const { w = fused(x, 1 / ((r + eps) / divisor) + added, w); }
  Lerp<T> mean;
  MeanSquare<T> square;
  T eps, divisor, added;
};

// --- the walk over the elements

/// The lists that an optimizer does not have are read as 0.
template <bool kHas, class T>
inline T get(const T* from, int64_t i) {
  if constexpr (kHas) return from[i];
  return T{0};
}
template <bool kHas, class T>
inline void put(T* to, int64_t i, T value) {
  if constexpr (kHas) to[i] = value;
}

/// Calls change(i, g, w, x, y, z) for each element, and keeps what that makes of the state and, if `kKeepsWeights`, of
/// the weights.
template <class T, int kLists, bool kKeepsWeights, class Numbers, class Change>
inline void walk(const Stretch<Numbers>& stretch, int64_t begin, int64_t end, const Change& change) {
  T* __restrict weights = static_cast<T*>(stretch.parameter);
  const T* __restrict gradients = static_cast<const T*>(stretch.gradient);
  T* __restrict xs = static_cast<T*>(stretch.state[0]);
  T* __restrict ys = static_cast<T*>(stretch.state[1]);
  T* __restrict zs = static_cast<T*>(stretch.state[2]);
  const T first = static_cast<T>(stretch.factors[0]), second = static_cast<T>(stretch.factors[1]);
  const T decay = static_cast<T>(stretch.numbers.decay.weight_decay);
  const T kept = static_cast<T>(stretch.numbers.decay.kept_weight);
  const bool decays = stretch.numbers.decay.weight_decay != 0;
  for (int64_t i = begin; i < end; ++i) {
    const T weight = weights[i];
    const T gradient = gradients[i] * first * second;
    const T g = decays ? fused(weight, decay, gradient) : gradient;
    T w = weight * kept;
    T x = get<(kLists & kX) != 0>(xs, i), y = get<(kLists & kY) != 0>(ys, i), z = get<(kLists & kZ) != 0>(zs, i);
    change(i, g, w, x, y, z);
    put<kKeepsWeights>(weights, i, w);
    put<(kLists & kX) != 0>(xs, i, x);
    put<(kLists & kY) != 0>(ys, i, y);
    put<(kLists & kZ) != 0>(zs, i, z);
  }
}

template <class Step, class T, class Numbers>
void run(const Stretch<Numbers>& stretch, int64_t begin, int64_t end) {
  const Step step(stretch.numbers);
  walk<T, Step::kLists, true>(stretch, begin, end,
                              [&](int64_t, T g, T& w, T& x, T& y, T& z) { step.change(g, w, x, y, z); });
}

/// As many elements at a time as there are to be roots: before their roots are taken, and then once more.
template <class Step, class T, class Numbers>
void run_with_roots(const Stretch<Numbers>& stretch, int64_t begin, int64_t end, const Roots<T>& roots) {
  const Step step(stretch.numbers);
  const int64_t at_once = roots.at_once / Step::kRoots;
  alignas(64) T numbers[kMostRoots];  // NOLINT(modernize-avoid-c-arrays): see README.md
  for (int64_t from = begin; from < end; from += at_once) {
    const int64_t count = end - from < at_once ? end - from : at_once;
    const int64_t second = Step::kRoots > 1 ? count : 0;
    walk<T, Step::kLists, false>(stretch, from, from + count, [&](int64_t i, T g, T&, T& x, T& y, T& z) {
      T s{0};
      step.change(g, x, y, z, numbers[i - from], s);
      put<(Step::kRoots > 1)>(numbers + second, i - from, s);
    });
    roots.take(numbers, Step::kRoots * count);
    walk<T, Step::kLists, true>(stretch, from, from + count, [&](int64_t i, T g, T& w, T& x, T& y, T& z) {
      step.finish(g, w, x, y, z, numbers[i - from], get<(Step::kRoots > 1)>(numbers + second, i - from));
    });
  }
}

template <class T, class Numbers>
void run_step(const Stretch<Numbers>& stretch, int64_t begin, int64_t end, const Roots<T>& roots) {
  if constexpr (requires { Step<T, Numbers>::kRoots; }) {
    run_with_roots<Step<T, Numbers>>(stretch, begin, end, roots);
  } else {
    run<Step<T, Numbers>, T>(stretch, begin, end);
  }
}
template <class T>
void run_step(const Stretch<RMSpropNumbers>& stretch, int64_t begin, int64_t end, const Roots<T>& roots) {
  const bool has_momentum = stretch.numbers.momentum > 0;
  if (stretch.numbers.centered) {
    return has_momentum ? run_with_roots<RMSprop<T, true, true>>(stretch, begin, end, roots)
                        : run_with_roots<RMSprop<T, true, false>>(stretch, begin, end, roots);
  }
  return has_momentum ? run_with_roots<RMSprop<T, false, true>>(stretch, begin, end, roots)
                      : run_with_roots<RMSprop<T, false, false>>(stretch, begin, end, roots);
}

}  // namespace

template <class T, class Numbers>
void optimizer_loop(const Stretch<Numbers>& stretch, int64_t begin, int64_t end, const Roots<T>& roots) {
  run_step(stretch, begin, end, roots);
}

#define TRAINRUN_OPTIMIZER_LOOPS(Numbers)                                                                       \
  template void optimizer_loop<float, Numbers>(const Stretch<Numbers>&, int64_t, int64_t, const Roots<float>&); \
  template void optimizer_loop<double, Numbers>(const Stretch<Numbers>&, int64_t, int64_t, const Roots<double>&);
TRAINRUN_OPTIMIZER_LOOPS(RMSpropNumbers)
TRAINRUN_OPTIMIZER_LOOPS(AdagradNumbers)
TRAINRUN_OPTIMIZER_LOOPS(AdadeltaNumbers)
TRAINRUN_OPTIMIZER_LOOPS(AdamaxNumbers)
TRAINRUN_OPTIMIZER_LOOPS(NAdamNumbers)
TRAINRUN_OPTIMIZER_LOOPS(RAdamNumbers)
TRAINRUN_OPTIMIZER_LOOPS(LionNumbers)
TRAINRUN_OPTIMIZER_LOOPS(ASGDNumbers)
TRAINRUN_OPTIMIZER_LOOPS(RpropNumbers)
#undef TRAINRUN_OPTIMIZER_LOOPS

}  // namespace trainrun::kernels::TRAINRUN_CPU_PATH
