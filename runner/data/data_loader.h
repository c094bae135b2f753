#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "runner/data/batch_stream.h"
#include "runner/data/sampler.h"

namespace trainrun {

struct DataLoaderOptions {
  int64_t batch_size = 1;
  bool drop_last = false;  // a last batch that is not full
  bool shuffle = false;
  int64_t num_workers = 0;  // threads that make batches ahead; 0: `next` makes them
  uint64_t seed = 0;        // of the order of samples and of the transforms
  Split split = Split::kPad;
  int64_t rank = 0;
  int64_t world_size = 1;
  Drawing drawing = {};
};

/// Cuts a rank's samples into batches and makes them: gathered from the data set, then transformed, whole.
///
/// A sample depends on (seed, epoch, its number in the epoch's order) alone: neither on the batch size, the ranks or
/// num_workers nor on where an epoch was begun. Only transforms that look at the whole batch (Triplets) see its cuts.
///
/// On a GPU, samples that are the same each time and fit into its memory are kept there from the first `iterate` on;
/// others come from page-locked memory, the next batch while one is worked on.
class DataLoader {
 public:
  using Transforms = BatchTransforms;

  /// `dataset` is open, and outlives this; batches are given on `device`. Throws DataError where there is not one
  /// batch.
  DataLoader(const Dataset& dataset, Transforms transforms, const DataLoaderOptions& options,
             at::Device device = at::kCPU);
  DataLoader(const DataLoader&) = delete;
  DataLoader& operator=(const DataLoader&) = delete;
  /// Batches in an epoch, of this rank.
  int64_t num_batches() const { return num_batches(options_.rank); }
  /// Batches in an epoch that every rank has.
  int64_t fewest_batches() const { return num_batches(options_.world_size - 1); }
  /// Samples in each batch but the last.
  int64_t full_batch_size() const { return options_.batch_size; }
  /// Samples in batch number `batch` of this rank.
  int64_t batch_size(int64_t batch) const { return batch_size(batch, options_.rank); }
  /// Samples in batch number `batch` of all ranks together.
  int64_t global_batch_size(int64_t batch) const;
  /// Batches in an epoch of the rank that has most of them. In evaluation others may have one fewer, or none.
  int64_t most_batches() const { return num_batches(0); }
  /// The numbers in the data set of this rank's samples in an epoch, as batches take them: [n] int64.
  at::Tensor order(int64_t epoch) const { return sampler_.indices(epoch); }
  /// A batch of one sample that does not belong to this rank's share: for forward passes in which every rank takes
  /// part.
  Batch surplus_batch() const;
  /// From batch number `start_batch` of the epoch on. The stream uses this DataLoader; there may be several at a time.
  std::unique_ptr<BatchStream> iterate(int64_t epoch, int64_t start_batch = 0) const;

 private:
  int64_t num_batches(int64_t rank) const;
  int64_t batch_size(int64_t batch, int64_t rank) const;

  const Dataset& dataset_;
  Transforms transforms_;
  DataLoaderOptions options_;
  at::Device device_;
  Sampler sampler_;
  mutable std::once_flag looked_;      // whether samples can be kept
  mutable std::optional<Batch> kept_;  // all samples, on device_
};

}  // namespace trainrun
