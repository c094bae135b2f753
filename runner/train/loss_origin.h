#pragma once

#include <string>

#include "runner/train/job.h"

namespace trainrun {

/// Where a loss that is not finite comes from.
struct LossOrigin {
  std::string text;  // "the output of model.layers[3] (Linear) is the first that is not finite: …"; "": unknown
  bool is_from_before = false;  // a weight was not finite already: an earlier step is at fault
};

/// Makes the forward pass of `batch` once more and looks at every layer's output, after a loss of it was not finite. Only
/// for a job that ends: running means and random numbers go on. Unknown where other ranks take part in a pass.
LossOrigin origin_of_loss(Job& job, const Batch& batch);

}  // namespace trainrun
