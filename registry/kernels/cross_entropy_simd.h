#pragma once

#include <cstdint>

#include "registry/kernels/simd.h"

// The loops of cross_entropy.h, on bare memory. Declarations only: sources that are compiled for each kind of
// instructions include this header (see README.md).

namespace trainrun::kernels {

/// Logits of classes, row after row without gaps, of float32 or of bfloat16, and the class of each row that is wanted.
/// Rows whose target is `ignored` do not count.
struct LogitRows {
  const void* logits;
  int64_t classes;
  bool is_bfloat16;
  const int64_t* targets;
  int64_t ignored;
};

/// Of the rows [begin, end) that count: norms[row][2], the largest logit and the logarithm of the sum of
/// e^(logit - largest), and log_p[row], the logarithm of the target's probability.
TRAINRUN_ON_EACH_PATH(void log_probabilities(const LogitRows& rows, int64_t begin, int64_t end, float* norms,
                                             float* log_p))
/// The gradients of the logits of the rows [begin, end) from that of log_p[row]; of rows that do not count, zeros.
TRAINRUN_ON_EACH_PATH(void log_probabilities_back(const LogitRows& rows, int64_t begin, int64_t end, const float* norms,
                                                  const float* grad_log_p, void* grad_logits))

}  // namespace trainrun::kernels
