#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace trainrun {

/// The results of an optimizer step. The tensors are on the device that computed them. Reading one of them makes the
/// host wait for a GPU, so they are read only when a line of the log, an evaluation or a checkpoint is due.
struct StepResult {
  at::Tensor loss;       // float64 scalar: mean over the step's samples; with several GPUs, this rank's share of it
  at::Tensor parts;      // [n] float64, likewise: each loss, unweighted; undefined if the recipe has one loss
  at::Tensor grad_norm;  // scalar, before clipping; undefined if gradients are not clipped
  at::Tensor overflow;  // float32 scalar: 1 where gradients overflowed and the step is skipped, else 0; undefined where
                        // the loss is not scaled
  int64_t samples = 0;  // over all ranks
  int64_t tokens = 0;   // likewise: positions of `input_ids`, padding included; 0: no text
  int signal = 0;       // the signal that the ranks agreed on; 0 for none
  bool is_last = false;      // training ends with this step: training.max_time is over by rank 0's clock, or max_tokens
  bool is_save_due = false;  // by rank 0's clock: checkpoint.every is a time, and it has passed
};

}  // namespace trainrun
