#include "registry/kernels/cross_entropy_simd.h"

#include "registry/kernels/row_math.h"
#include "registry/kernels/small_products.h"

// NOLINTBEGIN(readability-identifier-naming): see README.md

namespace trainrun::kernels::TRAINRUN_CPU_PATH {
namespace {

constexpr int64_t kBlock = 1024;  // numbers whose sum is apart, so that many classes are summed as precisely as few
static_assert(kBlock % kLanes == 0);

template <class T>
float largest_logit(const T* row, int64_t count) {
  constexpr int kChains = 4;  // that do not wait for each other
  constexpr int64_t kStep = int64_t{kChains} * kLanes;
  const Floats none = all_of(-__builtin_inff());
  Floats most[kChains] = {none, none, none, none};  // NOLINT(modernize-avoid-c-arrays)
  int64_t i = 0;
  for (; i + kStep <= count; i += kStep) {
#pragma GCC unroll 4
    for (int k = 0; k < kChains; ++k) most[k] = larger(get<true>(row + i + k * kLanes, kLanes), most[k]);
  }
  for (; i < count; i += kLanes) {
    most[0] = larger(only_first(get<false>(row + i, count - i), count - i, -__builtin_inff()), most[0]);
  }
  return largest_of(larger(larger(most[0], most[1]), larger(most[2], most[3])));
}

/// The sum of e^(logit - largest).
template <class T>
float sum_of_powers(const T* row, int64_t count, float largest) {
  float sum = 0;
  for (int64_t begin = 0; begin < count; begin += kBlock) {
    const int64_t end = lesser(begin + kBlock, count);
    Floats of_block{};
    int64_t i = begin;
    for (; i + kLanes <= end; i += kLanes) of_block += exponential(get<true>(row + i, kLanes) - all_of(largest));
    if (i < end) {
      of_block += only_first(exponential(get<false>(row + i, end - i) - all_of(largest)), end - i, 0);
    }
    sum += sum_of(of_block);
  }
  return sum;
}

template <class T>
float number_at(const T* from) {
  return get<false>(from, 1)[0];
}

template <class T>
void forward_as(const LogitRows& rows, int64_t begin, int64_t end, float* norms, float* log_p) {
  for (int64_t row = begin; row < end; ++row) {
    const int64_t target = rows.targets[row];
    if (target == rows.ignored) continue;
    const T* const logits = static_cast<const T*>(rows.logits) + row * rows.classes;
    const float largest = largest_logit(logits, rows.classes);
    const float log_sum = __builtin_logf(sum_of_powers(logits, rows.classes, largest));
    norms[2 * row] = largest;
    norms[2 * row + 1] = log_sum;
    log_p[row] = number_at(logits + target) - largest - log_sum;
  }
}

/// The gradient of a logit that is not the target's: less as much as its class is probable.
TRAINRUN_INLINE inline Floats away(Floats logits, float largest, float log_sum, float grad) {
  return all_of(-grad) * exponential(logits - all_of(largest) - all_of(log_sum));
}

template <class T>
void back_as(const LogitRows& rows, int64_t begin, int64_t end, const float* norms, const float* grad_log_p,
             void* grad_logits) {
  for (int64_t row = begin; row < end; ++row) {
    const int64_t target = rows.targets[row];
    const T* const logits = static_cast<const T*>(rows.logits) + row * rows.classes;
    T* const to = static_cast<T*>(grad_logits) + row * rows.classes;
    int64_t i = 0;
    if (target == rows.ignored) {
      for (; i + kLanes <= rows.classes; i += kLanes) put<true>(to + i, Floats{}, kLanes);
      if (i < rows.classes) put<false>(to + i, Floats{}, rows.classes - i);
      continue;
    }
    const float largest = norms[2 * row], log_sum = norms[2 * row + 1], grad = grad_log_p[row];
    for (; i + kLanes <= rows.classes; i += kLanes) {
      put<true>(to + i, away(get<true>(logits + i, kLanes), largest, log_sum, grad), kLanes);
    }
    if (i < rows.classes) {
      const int64_t count = rows.classes - i;
      put<false>(to + i, away(get<false>(logits + i, count), largest, log_sum, grad), count);
    }
    const Floats wanted = all_of(number_at(logits + target));
    put<false>(to + target, all_of(grad) + away(wanted, largest, log_sum, grad), 1);
  }
}

}  // namespace

void log_probabilities(const LogitRows& rows, int64_t begin, int64_t end, float* norms, float* log_p) {
  (rows.is_bfloat16 ? forward_as<Bfloat16> : forward_as<float>)(rows, begin, end, norms, log_p);
}

void log_probabilities_back(const LogitRows& rows, int64_t begin, int64_t end, const float* norms,
                            const float* grad_log_p, void* grad_logits) {
  (rows.is_bfloat16 ? back_as<Bfloat16> : back_as<float>)(rows, begin, end, norms, grad_log_p, grad_logits);
}

}  // namespace trainrun::kernels::TRAINRUN_CPU_PATH
// NOLINTEND(readability-identifier-naming)
