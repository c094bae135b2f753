#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace trainrun {

/// What an optimizer step found. The tensors lie on the device where they were computed: to read one of them makes the
/// host wait for a GPU, so it is done when a line of the log, an evaluation or a checkpoint is due.
struct StepResult {
  at::Tensor loss;       // float64 scalar: mean over the step's samples; of several GPUs: this rank's share of it
  at::Tensor parts;      // [n] float64, likewise: each loss, not weighted; undefined where the recipe has one
  at::Tensor grad_norm;  // scalar, before clipping; undefined where gradients are not clipped
  at::Tensor overflow;  // float32 scalar: 1 where gradients overflowed and the step is skipped, else 0; undefined where
                        // the loss is not scaled
  int64_t samples = 0;  // of all ranks
  int signal = 0;       // that several ranks agreed on
};

}  // namespace trainrun
