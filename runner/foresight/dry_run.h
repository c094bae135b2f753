#pragma once

#include <vector>

#include "runner/model/recipe_loader.h"
#include "runner/train/resources.h"

namespace trainrun {

/// Some steps of one rank, without the others.
struct DryRun {
  RankResources resources;
  int64_t world_size = 1;
  int64_t num_samples = 0;          // that the rank saw
  std::vector<int64_t> samples;     // their numbers in the training data, of its first batch
  int64_t peak_resident_bytes = 0;  // of this process, which also holds the program and the data
};

/// Does `steps` optimizer steps of one rank as a job of `world_size` ranks would: its data, its part of each batch, its
/// memory, what it hands to collectives. Nobody answers, and nothing is written. Sums over ranks are this rank's
/// numbers alone, and sharded parameters are this rank's part in every place, so losses and weights mean nothing.
/// Throws what building and training throw.
DryRun dry_run(const LoadedRecipe& loaded, int64_t world_size, int64_t rank, int64_t steps = 2);

}  // namespace trainrun
