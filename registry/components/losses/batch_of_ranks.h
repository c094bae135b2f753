#pragma once

#include <torch/nn/module.h>

#include "registry/kinds/communicator.h"

namespace trainrun {

/// The state of a loss that compares the samples of all ranks with each other, while training; an evaluation, in which
/// ranks may have fewer batches than others, compares each batch by itself.
class BatchOfRanks : public torch::nn::Module, public SpansRanks {
 public:
  void span(Communicator& ranks, bool sync_batchnorm) override;

  /// The rows of all ranks, [world * N, …], the first rank's first; every rank has as many. Its gradient is the sum of
  /// those of all ranks: with the mean over ranks that data parallel takes, this is the gradient of the mean of their
  /// losses. Collective in both directions where gradients are recorded, else `rows`.
  at::Tensor gather(const at::Tensor& rows) const;
  /// Where those of this rank begin, of which it has `count`.
  int64_t first_row(int64_t count) const;

 private:
  bool gathers() const;
  Communicator* ranks_ = nullptr;
};

}  // namespace trainrun
