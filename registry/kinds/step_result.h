#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace trainrun {

/// The figures of an optimizer step. The tensors are on the device that computed them. Reading one of them makes the
/// host wait for a GPU, so they are read only when a line of the log, an evaluation or a checkpoint is due.
struct StepResult {
  at::Tensor loss;       // float64 scalar: mean over the step's samples; with several GPUs, this rank's share of it
  at::Tensor parts;      // [n] float64, likewise: each loss, unweighted; undefined if the recipe has one loss
  at::Tensor grad_norm;  // scalar, before clipping; undefined if gradients are not clipped
  at::Tensor overflow;  // float32 scalar: 1 where gradients overflowed and the step is skipped, else 0; undefined where
                        // the loss is not scaled
  int64_t samples = 0;  // over all ranks
  int64_t tokens = 0;   // likewise: positions of `input_ids`, padding included; 0: no text
};

}  // namespace trainrun
