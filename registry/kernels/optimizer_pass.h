#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <optional>
#include <vector>

#include "registry/kernels/optimizer_loops.h"
#include "registry/kernels/optimizer_simd.h"
#include "registry/tensors/step_division.h"

namespace trainrun::kernels {

/// Whether a parameter can be changed by an OptimizerPass: float32 or float64 without gaps, on a CPU with AVX2 and FMA
/// whose kernels ATen uses. Others take ATen's fused operations.
bool is_for_optimizer_pass(const at::Tensor& parameter);

/// Of StepDivision::exchange, for a pass over these parameters.
int64_t exchange_bytes(const std::vector<at::Tensor>& parameters);

AdamNumbers adam_numbers(double lr, double beta1, double beta2, double eps, double weight_decay, bool is_decoupled,
                         bool amsgrad, double step);

/// An elementwise step of many parameters as one walk over their memory, on ATen's threads: gradients are multiplied on
/// the way, and stay as they are. The results are those of at::_fused_adam_, at::_fused_adamw_, at::_fused_sgd_ and
/// at::_fused_adagrad_, and for other optimizers those of the operations on lists in torch.optim's foreach forms, after
/// at::_foreach_mul_, bit for bit. ATen walks over the gradients once for each factor, over each list once for each
/// operation, and starts its threads for each tensor, however small.
template <class Numbers>
class OptimizerPass {
 public:
  /// `factors`: at most two scalars, by which gradients are multiplied, one after the other. They are read where the
  /// first parameter is added: on a GPU none is, and the host does not wait.
  explicit OptimizerPass(const std::vector<at::Tensor>& factors);

  /// Adds a parameter, whose dtype and strides `gradient` and `state` have: the optimizer's lists, undefined where it
  /// has none. `maximize`: the gradient is negated. Parameter and state outlive this.
  void add(const at::Tensor& parameter, const at::Tensor& gradient, const std::vector<at::Tensor>& state,
           const Numbers& numbers, bool maximize);
  /// Makes the step; with a `division` only this rank's share of it, and takes the other ranks' parameters over.
  void run(const StepDivision* division = nullptr) const;

 private:
  using Loop = void (*)(const Stretch<Numbers>& stretch, int64_t begin, int64_t end);
  struct Item {
    Stretch<Numbers> stretch{};
    Loop loop = nullptr;
    at::Tensor gradient = {};  // kept: it may be a copy, made for its strides
    int64_t element_size = 0;
    int64_t exchange_begin = 0;  // where it lies in StepDivision::exchange
  };
  template <class Body>
  void walk(int64_t begin, int64_t end, const Body& body) const;

  std::vector<at::Tensor> factors_;
  std::optional<std::array<double, 2>> multipliers_;  // once they are read
  std::vector<Item> items_;
  std::vector<int64_t> ends_;  // of each item's units, counted over all
  int64_t exchanged_bytes_ = 0;
};

using AdamPass = OptimizerPass<AdamNumbers>;
using SgdPass = OptimizerPass<SgdNumbers>;

}  // namespace trainrun::kernels
