#pragma once

#include <cstdint>

#include "registry/language/splitmix.h"

namespace trainrun {

/// The seed of what a rank's layers draw while training (dropout, noise), for a rank that joins at `step`. Rank 0 has
/// none: it goes on drawing from where building the model left the default generator, as a single process and PyTorch
/// do. Others would drop out the same elements of their own samples if they did so too.
constexpr uint64_t rank_seed(uint64_t seed, int64_t rank, int64_t step) {
  return splitmix64(splitmix64(splitmix64(seed) ^ static_cast<uint64_t>(rank)) ^ static_cast<uint64_t>(step));
}

}  // namespace trainrun
