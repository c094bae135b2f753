#pragma once

#include <string>
#include <vector>

#include "registry/tensors/named_tensors.h"
#include "runner/model/model.h"

namespace trainrun {

/// `tensors` of a checkpoint in Hugging Face's layout under the names that they have in a model whose tensors are
/// `names`: with the encoder's prefix (`bert.`, `model.`) put before or taken away, gamma and beta called weight and
/// bias, and without the buffers that old versions saved (position_ids, GPT-2's masks).
NamedTensors with_names_of(const NamedTensors& tensors, const std::vector<std::string>& names);

/// Loads the weights of the folders that registered models of `model` name as `pretrained`. Weights that a folder lacks,
/// such as those of a new classifier, stay as they were drawn; these, and what the model has no place for, are returned,
/// one line for each folder. Throws DataError, and Error where shapes differ or nothing fits.
std::vector<std::string> load_pretrained(Model& model);
/// What the user should know about the files that these models were made from.
std::vector<std::string> pretrained_notes(const Graph& graph);
/// A line for each of these folders whose vocabulary has grown, since tokens were added.
std::vector<std::string> grown_vocabularies(const Graph& graph);
/// The same as load_pretrained for a graph without losses; weights that a folder lacks are an Error.
std::vector<std::string> load_all_pretrained(const Graph& graph);

}  // namespace trainrun
