#pragma once

#include <nlohmann/json.hpp>

#include <string>

namespace trainrun {

/// What a YAML text says that describes data, such as the head of a data set's card. Scalars are texts whatever they look
/// like, but for null. Aliases are expanded; nested at most 32 deep, at most 200,000 values. (Recipes are read by
/// runner/recipe/yaml.h, which knows where each value stands.) Throws DataError, which begins with `place` and the line,
/// of which `first_line` is the text's first.
nlohmann::json read_yaml(const std::string& text, const std::string& place, int first_line = 1);

}  // namespace trainrun
