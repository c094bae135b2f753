#pragma once

#include <functional>
#include <string>
#include <vector>

#include "runner/foresight/demand.h"

namespace trainrun {

/// What `dataloader.micro_batch_size: auto` comes to.
struct MicroBatch {
  int64_t size = 0;
  std::string reason;  // for people: where the number is from
};

/// Of a recipe that says `auto`: the number that the run which the recipe goes on with, or the newest of its name, keeps;
/// else the largest divisor of the batch size with which the job fits into nine tenths of the free memory. Throws Error
/// where not one sample does.
MicroBatch find_micro_batch(const LoadedRecipe& loaded, const Rehearse& rehearse);

}  // namespace trainrun
