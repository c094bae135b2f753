#pragma once

#include <cstddef>
#include <cstdint>

#include "registry/kernels/simd.h"

// The loops of row_norm.h, on bare memory. Declarations only: sources that are compiled for each kind of instructions
// include this header (see README.md).

namespace trainrun::kernels {

/// Rows of `features` numbers, side by side in memory, one row after the other.
struct NormShape {
  int64_t features;
  float eps;
  bool is_rms;  // the mean is not subtracted
};

/// What is added to the rows before they are normalized: float32 or bfloat16, one of the two is null. A dropout takes it
/// where `kept` is 0, and multiplies it by `scale` where that is 1; null: there is none.
struct AddedRows {
  const float* plain;
  const uint16_t* half;
  const uint8_t* kept;
  float scale;
};

/// What the forward pass reads and writes, in float32 unless it is called half, which is bfloat16. What may be null is
/// not there, or not wanted.
struct NormForward {
  const float* x;
  AddedRows addend;     // only read if there is a sum
  float* sum;           // of both; or null: nothing is added
  const float* weight;  // or null: 1
  const float* bias;    // or null: 0
  float* y;             // or null
  uint16_t* y_half;     // or null
  float* means;         // of each row
  float* factors;       // of each row: what its numbers are multiplied by
};

/// Likewise. The gradients of weight and bias are added to.
struct NormBackward {
  const float* x;  // what was normalized
  const float* means;
  const float* factors;
  const float* weight;          // or null: 1
  const float* grad_y;          // or null
  const uint16_t* grad_y_half;  // or null
  const float* grad_sum;        // or null
  float* grad_x;                // of what was normalized
  AddedRows addend;             // its dropout
  float* grad_plain;            // of the addend; or null
  uint16_t* grad_half;          // of the addend; or null
  float* grad_weight;           // [features]; or null
  float* grad_bias;             // [features]; or null
};

/// The rows [begin, end).
TRAINRUN_ON_EACH_PATH(void norm_forward(const NormShape& shape, const NormForward& pass, int64_t begin, int64_t end))
/// Likewise; `scratch` has `features` floats.
TRAINRUN_ON_EACH_PATH(void norm_backward(const NormShape& shape, const NormBackward& pass, int64_t begin, int64_t end,
                                         float* scratch))

}  // namespace trainrun::kernels
