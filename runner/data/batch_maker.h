#pragma once

#include <memory>
#include <vector>

#include "runner/data/batch_stream.h"
#include "runner/data/sampler.h"

namespace trainrun {

/// Makes the batches of one epoch of a rank: gathered from the data set, then transformed. Used by several threads.
///
/// Each sample is a function of (seed, epoch, its number in the order over all ranks); where a transform pairs samples
/// (Mixup), also of the samples before it, which are made as well where another batch or rank has them.
class BatchMaker {
 public:
  using Transforms = BatchTransforms;

  /// `dataset` and `transforms` outlive this. `for_gpu`: batches are in page-locked memory, and `finish` has still to be
  /// called where they are used.
  BatchMaker(const Dataset& dataset, const Transforms& transforms, const Sampler& sampler, uint64_t seed, int64_t epoch,
             bool for_gpu);
  /// The rank's samples `first` … `first + size - 1` of the epoch.
  Batch make(int64_t first, int64_t size) const;
  /// Applies the transforms that `make` left to the GPU, where `batch` is: a quarter of the bytes is sent there where
  /// pixels are still bytes.
  void finish(Batch& batch) const;

 private:
  using Numbers = std::vector<int64_t>;  // of samples, in the order over all ranks

  /// Those samples after the first `count` transforms, row by row.
  Batch transformed(const Numbers& numbers, size_t count) const;
  /// The same where the last of these transforms pairs each sample with the one before it.
  Batch paired(const Numbers& numbers, size_t count) const;
  Batch gathered(const Numbers& numbers) const;
  SampleDraws draws(int64_t transform, const Numbers& numbers) const;

  const Dataset& dataset_;
  const Transforms& transforms_;
  std::vector<size_t> application_;  // the transforms' numbers, in the order in which they are applied
  size_t num_made_;                  // of these, how many `make` applies
  uint64_t seed_;
  int64_t epoch_;
  int64_t rank_;
  int64_t world_size_;
  int64_t num_samples_;  // of the order, over all ranks
  bool pairs_;           // whether samples of other ranks are wanted
  at::Tensor order_;     // indices of this rank's samples; where `pairs_`, of all
  bool for_gpu_;
};

}  // namespace trainrun
