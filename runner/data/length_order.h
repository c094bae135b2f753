#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace trainrun {

/// The numbers of samples with these `lengths` ([N] int64), each once, so that each `unit` of them that follow each
/// other are of about one length: torch.randperm of a generator seeded `seed + epoch`, in stretches of 50 units (fewer
/// of a small set, so that there are 4), each stretch sorted, the longest first; and the longest of all is the first.
/// Source: transformers.trainer_pt_utils.get_length_grouped_indices, the order of DistributedLengthGroupedSampler.
at::Tensor length_grouped_order(const at::Tensor& lengths, int64_t unit, uint64_t seed, int64_t epoch);

/// How much of an epoch's batches of `batch_size` is padding, if each is filled up to its longest: 0 to 1. `order`: of
/// all ranks' samples, [N] int64, of which rank r of `world_size` takes r, r + world_size, …
double padding_share(const at::Tensor& lengths, const at::Tensor& order, int64_t batch_size, int64_t world_size);

}  // namespace trainrun
