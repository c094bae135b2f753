#pragma once

#include <string>
#include <vector>

#include "registry/graph/graph.h"
#include "runner/data/data_loader.h"
#include "runner/recipe/recipe.h"

namespace trainrun {

/// Throws RecipeError where training would come to a batch of one sample, of which a BatchNorm of the graph sees one
/// value a channel. `num_samples`: of an epoch, all ranks together.
void check_batch_norms(const Recipe& recipe, const Graph& graph, int64_t num_samples, int64_t world_size);

/// Throws RecipeError where `training.max_tokens` is to end a training whose batches have no `input_ids`.
void check_tokens(const Recipe& recipe, const DatasetInfo& info);

/// A line for each field of numbers whose columns reach the model a thousand times larger than it can learn from well,
/// with their names and what to do. `transforms`: those of training.
std::vector<std::string> scale_warnings(const Recipe& recipe, const Graph& graph, const Dataset& data,
                                        const DataLoader::Transforms& transforms);

/// Where losses that learn numbers (MSELoss, …) read the target: a line where it is a class with a name, and one where
/// its deviation is far from 1. Where losses that learn classes do: one where it holds numbers that are none, or one
/// class alone. `info`: the fields after the transforms, which are those of training.
std::vector<std::string> target_warnings(const Recipe& recipe, const DatasetInfo& info, const Dataset& data,
                                         const DataLoader::Transforms& transforms);

/// "people.csv, 200 rows, columns: auto: age number, city category of 3": a line, or "" where nothing had to be
/// inferred.
std::string inferred_text(const nlohmann::json& inferred);

}  // namespace trainrun
