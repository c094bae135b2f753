#pragma once

#include "registry/kinds/communicator.h"

namespace trainrun {

/// The tensors of a batch normalization; undefined ones are left out.
struct BatchNormTensors {
  at::Tensor weight;        // [C]
  at::Tensor bias;          // [C]
  at::Tensor running_mean;  // [C], updated
  at::Tensor running_var;   // [C], updated, by the unbiased variance
};

/// Normalizes `input` [N, C, …] over the batches of all ranks, in training; the gradient is that of one process with
/// all of them. Every rank calls it; N may differ. `momentum`: weight of this batch in the running statistics.
/// Semantics of torch.nn.SyncBatchNorm, on any backend; ranks' variances are merged as Chan et al. 1979 do.
at::Tensor sync_batch_norm(const at::Tensor& input, const BatchNormTensors& tensors, double momentum, double eps,
                           Communicator& ranks);

}  // namespace trainrun
