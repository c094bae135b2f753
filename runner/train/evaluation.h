#pragma once

#include <string>
#include <utility>
#include <vector>

#include "registry/catalog.h"

namespace trainrun {

/// What a run left, or one checkpoint of it.
struct TrainedModel {
  std::string recipe;      // RUN/recipe.yaml
  std::string checkpoint;  // RUN/checkpoints/NAME
};

/// Finds recipe and checkpoint of a run's folder (its best checkpoint, else its newest whole one) or of a checkpoint's
/// folder. Throws Error where neither is there.
TrainedModel find_trained(const std::string& run_or_checkpoint);

/// Loss and metrics of a trained model over the evaluation split of its recipe, as changed by `overrides`.
std::vector<std::pair<std::string, double>> evaluate_trained(const TrainedModel& trained,
                                                             const std::vector<std::string>& overrides,
                                                             Catalog& catalog);

}  // namespace trainrun
