#pragma once

#include <string>
#include <vector>

#include "registry/graph/graph.h"
#include "runner/data/data_loader.h"
#include "runner/recipe/recipe.h"

namespace trainrun {

struct JobLength {
  int64_t total_steps = 0;  // optimizer steps
  int64_t steps_per_epoch = 0;
};

/// What is no fault of a job, but hardly meant, and can be told only now that its data are open and its steps are
/// known: features or targets of an unusual size, classes learnt as numbers, a schedule or an average that the job ends
/// before, packing that leaves hardly any steps. A sentence each, without what `notes_of_all` tells. `transforms`: those
/// of training.
std::vector<std::string> job_notes(const Recipe& recipe, const Graph& graph, const Dataset& data,
                                   const DataLoader::Transforms& transforms, const JobLength& length);

}  // namespace trainrun
