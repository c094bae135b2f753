#pragma once

#include <string>
#include <vector>

#include "registry/catalog.h"
#include "registry/tensors/files/safetensors.h"

namespace trainrun {

/// Which of a recipe's training batches are wanted: from number `start` of epoch `epoch` on, of one of several ranks.
struct WantedBatches {
  int64_t rank = 0;
  int64_t world_size = 1;
  int64_t epoch = 0;
  int64_t start = 0;
};

/// The fields of those batches, as a model gets them: "BATCH.FIELD". Throws what the recipe or its data are refused for.
NamedTensors batches_of(const std::string& path, const std::vector<std::string>& overrides, Catalog& catalog,
                        const WantedBatches& wanted);

}  // namespace trainrun
