#pragma once

#include <string>
#include <vector>

#include "runner/model/model.h"
#include "runner/recipe/recipe.h"

namespace trainrun {

/// The recipe with what `dataset` adds to the tokenizer in each data set and transform that names one, and with the number
/// of tokens in each layer that has an embedding of them; `growth` is what they make of the tokenizer. Problems: no data
/// set has a tokenizer, or several have different ones; it cannot be read, or not get these tokens. A tokenizer that is
/// still to be fetched, where this process may not, leaves the layers as they are. The recipe may be faulty.
Value with_added_tokens(Value recipe, const Catalog& catalog, TokenGrowth& growth, std::vector<Problem>& problems);

/// Throws RecipeError where adapters, or `freeze`, keep the embedding of new tokens from ever learning them.
void check_new_tokens_learn(const Recipe& recipe, const Model& model);

/// What was added to the tokenizer, a line for the log; "" for nothing.
std::string added_tokens_text(const Recipe& recipe);
/// The same of rows that `pretrained` models got for them, or did not need; and of an output that cannot learn them.
std::vector<std::string> new_rows_texts(const Recipe& recipe, const Model& model);

}  // namespace trainrun
