#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>

namespace trainrun {

/// How samples are shared out among the ranks when their number is no multiple of the ranks'.
enum class Split {
  kPad,             // every rank gets the same number: the first samples of the order come again at its end
  kEverySampleOnce  // some ranks get one sample more than others
};

/// How samples are drawn where they do not simply come once each.
struct Drawing {
  at::Tensor weights;       // [N] float64: how often each comes, relative to the others; undefined: once
  at::Tensor strata;        // [N] int64: classes, of which every stretch of the order has its share; undefined: none
  int64_t num_samples = 0;  // drawn in an epoch; 0: as many as there are
  bool replacement = true;  // a sample may be drawn by weight several times
  std::function<at::Tensor(uint64_t seed, int64_t epoch)> order = {};  // instead of a permutation of all: [num_samples]
};

struct SamplerOptions {
  bool shuffle = false;
  uint64_t seed = 0;
  Split split = Split::kPad;
  int64_t rank = 0;
  int64_t world_size = 1;
  Drawing drawing = {};  // where it says anything, `shuffle` does not count
};

/// The order in which a rank sees the samples of a data set. For kPad that of
/// torch.utils.data.DistributedSampler(num_replicas=world_size, rank=rank, shuffle, seed) after
/// set_epoch(epoch). By weights it is torch.multinomial(weights, num_samples, replacement), as WeightedRandomSampler's.
class Sampler {
 public:
  Sampler(int64_t num_samples, SamplerOptions options);
  /// Number of samples that this rank, or another one, sees in an epoch.
  int64_t size() const { return size(options_.rank); }
  int64_t size(int64_t rank) const;
  /// Indices of this rank's samples in this epoch: [size()] int64. Shuffled, they are torch.randperm(num_samples) of a
  /// generator seeded `seed + epoch`, of which rank r takes r, r + world_size, ….
  at::Tensor indices(int64_t epoch) const;
  /// The same for all ranks, before they share it: [num_samples()], int32 or int64; place p is that of rank
  /// p % world_size.
  at::Tensor all_indices(int64_t epoch) const;
  int64_t rank() const { return options_.rank; }
  int64_t world_size() const { return options_.world_size; }
  /// Samples in an epoch, over all ranks, before some come again at its end.
  int64_t num_samples() const { return num_samples_; }
  /// Most bytes that `indices` takes at a time, where samples come once each; what it gives is among them.
  int64_t order_bytes() const;

 private:
  bool is_drawn() const;
  at::Tensor order(int64_t epoch) const;
  at::ScalarType order_dtype() const;

  int64_t num_samples_;  // of an epoch, all ranks together
  SamplerOptions options_;
};

}  // namespace trainrun
