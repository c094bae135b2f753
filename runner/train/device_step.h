#pragma once

#include "registry/kinds/step_result.h"
#include "runner/train/job.h"
#include "runner/train/occasion.h"

namespace trainrun {

/// The part of a step that the device computes: forward and backward passes, and what becomes of their gradients.
/// Nothing here depends on signals, clocks or counts, and nothing reads a GPU: the host decides in train_step.cpp.
class DeviceStep {
 public:
  /// `figures`: of the step; `samples` is known. Both outlive this.
  DeviceStep(Job& job, StepResult& figures);

  /// The losses of a batch. `synchronize`: it is the window's last; before it, gradients add up on each rank.
  LossValue forward(const Batch& batch, bool synchronize, const Occasion& occasion);
  /// Its gradients, added to those there are, and its share of the step's loss, added to the figures. `shares`: which
  /// part of the step's targets are the batch's.
  void backward(const LossValue& losses, const Batch& batch, const TargetCounts& shares, bool synchronize,
                const Occasion& occasion);
  /// Once all gradients are there: measures them, and finds what unscales and clips them. Where ranks have pieces of
  /// them, all call it.
  void finish();

  /// What the gradients have yet to be multiplied by.
  const Tensors& factors() const { return factors_; }
  /// Multiplies the gradients by the factors, which are none then.
  void apply_factors();

 private:
  /// On the CPU, where gradients are finite if their norm is, the scale is taken back by a factor; `norm`: of the
  /// gradients without it. False where each of them must be looked at.
  bool defer_unscaling(at::Tensor& norm);

  Job& job_;
  StepResult& figures_;
  Tensors factors_;
};

/// Whether `overflow`, which the host may read, is 1; undefined, it is not.
bool is_overflow(const at::Tensor& overflow);

}  // namespace trainrun
