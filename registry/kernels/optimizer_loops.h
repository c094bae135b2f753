#pragma once

#include <cstdint>

// The loops of optimizer_pass.h, on bare memory. Declarations only: a source compiled for AVX2 includes this header
// (see README.md).

namespace trainrun::kernels {

/// One step of Adam: what each element is computed with.
struct AdamNumbers {
  double mean_share, square_share;  // 1 - beta1, 1 - beta2
  double beta2;
  double eps;
  double weight_decay, kept_weight;  // added to the gradient times the weight; what decoupled decay leaves, or 1
  double step_size;                  // lr / (1 - beta1^step)
  double root;                       // sqrt(1 - beta2^step)
  bool amsgrad;
};

/// One step of stochastic gradient descent.
struct SgdNumbers {
  double lr;
  double weight_decay;
  double momentum, share;  // share: 1 - dampening
  bool nesterov;
  bool begins;  // the gradient becomes the momentum
};

/// The memory of one parameter in a step: `size` elements in each.
template <class Numbers>
struct Stretch {
  void* parameter;
  const void* gradient;
  void* state[3];  // in the order of the optimizer's lists; null where it has none
  int64_t size;
  double factors[2];  // the gradient is multiplied by one, then by the other
  Numbers numbers;
};

/// Changes the elements from `begin` to `end`. The order of operations, and which product is rounded together with its
/// sum, are those of ATen's fused kernels for AVX2, down to the last elements of a tensor: there, the other product is.
template <class T>
void adam_avx2(const Stretch<AdamNumbers>& stretch, int64_t begin, int64_t end);
template <class T>
void sgd_avx2(const Stretch<SgdNumbers>& stretch, int64_t begin, int64_t end);

}  // namespace trainrun::kernels
