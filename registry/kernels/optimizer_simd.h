#pragma once

#include "registry/kernels/optimizer_loops.h"
#include "registry/kernels/simd.h"

// The loops of optimizer_pass.h for optimizers that ATen has as operations on lists, on bare memory. Declarations only:
// sources that are compiled for each kind of instructions include this header (see README.md).

namespace trainrun::kernels {

/// Weight decay: times the weight, it is added to the gradient; or, where it is decoupled, what it leaves of the weight.
struct Decay {
  double weight_decay = 0, kept_weight = 1;
};

// One step of each optimizer: what each element is computed with. Which state lists it changes stands beside it.

struct RMSpropNumbers {  // mean squares; mean gradients, if centered; momentum, if it is not 0
  double lr, alpha, eps, momentum;
  bool centered;
  Decay decay = {};
};

struct AdagradNumbers {  // sums of squares
  double rate, eps;
  Decay decay = {};
};

struct AdadeltaNumbers {  // mean squares of gradients, and of steps
  double lr, rho, eps;
  Decay decay = {};
};

struct AdamaxNumbers {  // means, largest gradients
  double mean_share, beta2, eps;
  double rate;  // -lr / (1 - beta1^step)
  Decay decay = {};
};

struct NAdamNumbers {  // means, mean squares
  double mean_share, beta2, eps;
  double root;                      // sqrt(1 - beta2^step)
  double gradient_rate, mean_rate;  // by which the gradient and the mean go into the step
  Decay decay = {};
};

struct RAdamNumbers {  // means, mean squares
  double mean_share, beta2, eps;
  double divisor, added;  // the mean goes into the step by 1 / (root / divisor) + added
  Decay decay = {};
};

struct LionNumbers {  // means
  double lr, step_share, mean_share;
  Decay decay = {};
};

struct ASGDNumbers {  // averages
  double lambd, eta, mu;
  Decay decay = {};
};

struct RpropNumbers {  // gradients of the step before, sizes of steps
  double shorter, longer, smallest, largest;
  Decay decay = {};
};

/// Replaces numbers by their square roots, as at::sqrt does: its roots are MKL's, which need not be the nearest numbers.
template <class T>
struct Roots {
  void (*take)(T* numbers, int64_t count);
  int64_t at_once;  // how many, at most kMostRoots
};
inline constexpr int64_t kMostRoots = 8192;

/// Changes the elements from `begin` to `end`. The order of operations, and which product is rounded together with its
/// sum, are those of ATen's operations on the lists of torch.optim's foreach forms. Those round products and sums
/// together wherever the processor can, and so does each path.
TRAINRUN_ON_EACH_PATH(template <class T, class Numbers> void optimizer_loop(const Stretch<Numbers>& stretch,
                                                                            int64_t begin, int64_t end,
                                                                            const Roots<T>& roots))

}  // namespace trainrun::kernels
