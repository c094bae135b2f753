#pragma once

#include <string>
#include <vector>

#include "registry/graph/graph.h"
#include "runner/data/data_loader.h"
#include "runner/recipe/recipe.h"
#include "runner/train/schedule_notes.h"

namespace trainrun {

/// What is no fault of a job, but hardly meant, and can be told only now that its data are open and its steps are
/// known: features or targets of an unusual size, classes learnt as numbers, packing that leaves hardly any steps, and
/// `schedule_notes`. A sentence each, without what `notes_of_all` tells. `transforms`: those
/// of training.
std::vector<std::string> job_notes(const Recipe& recipe, const Graph& graph, const Dataset& data,
                                   const DataLoader::Transforms& transforms, const JobLength& length);

}  // namespace trainrun
