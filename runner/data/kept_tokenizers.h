#pragma once

#include <nlohmann/json.hpp>

#include <string>
#include <vector>

#include "registry/language/value.h"

namespace trainrun {

struct Recipe;

/// What scalars the keys `key` have within `value`, each once, in their order.
std::vector<std::string> texts_under(const Value& value, const std::string& key);
/// The tokenizers that the recipe's data name: folders, files, or names of published models.
std::vector<std::string> named_tokenizers(const Recipe& recipe);

/// Copies the tokenizers that the recipe's data name into `folder`/tokenizers, so that what is trained outlives them, and
/// says of each its path in the recipe, the SHA-256 of its files and where its copy lies: a list; null: they name none.
/// Throws DataError, FileError.
nlohmann::json keep_tokenizers(const Recipe& recipe, const std::string& folder);

/// Has `recipe`, that of a run in `folder`, name the run's copies instead of tokenizers that are gone, or no longer as
/// they were in training; what was done is said in `notes`. `kept`: what keep_tokenizers said; null: nothing. Throws
/// DataError where there is no such copy.
void use_kept_tokenizers(Value& recipe, const nlohmann::json& kept, const std::string& folder,
                         std::vector<std::string>& notes);

}  // namespace trainrun
