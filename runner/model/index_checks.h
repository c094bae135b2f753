#pragma once

#include "registry/graph/graph.h"
#include "runner/data/checked_dataset.h"
#include "runner/recipe/recipe.h"

namespace trainrun {

/// The fields that losses read as class indices, and Embedding and EmbeddingBag as theirs, straight from batches of
/// `info`.
std::vector<IndexUse> index_uses(const Recipe& recipe, const Graph& graph, const DatasetInfo& info);

/// Throws RecipeError where what is known of the data before it is read says that indices will be too large: a
/// `vocab_size` above an Embedding's num_embeddings.
void check_known_indices(const Recipe& recipe, const Graph& graph, const DatasetInfo& info);

/// What to change where the output that `loss` reads has fewer classes than the data: "; write
/// model.layers[3].out_features: 10". Else "".
std::string advice_on_outputs(const Recipe& recipe, const Graph& graph, const DatasetInfo& info,
                              const Component<LossKind>& loss);
/// The losses whose output has more classes than the training data, so that some never come.
std::vector<Problem> surplus_outputs(const Recipe& recipe, const Graph& graph, const DatasetInfo& info);

/// The same of training data that were read, of what was not known before: how many classes texts and tags have.
std::vector<Problem> surplus_outputs(const Recipe& recipe, const Graph& graph, const DatasetInfo& info,
                                     const Dataset& data);

/// Checks that labels and indices are what the model can use: at once what lies in memory, the rest sample by sample as
/// `data` gives them. `info`: the fields that reach the model. Throws DataError with the sample's place.
void check_indices(const Recipe& recipe, const Graph& graph, Dataset& data, const DatasetInfo& info);

}  // namespace trainrun
