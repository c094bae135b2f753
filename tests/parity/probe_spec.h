#pragma once

#include <nlohmann/json.hpp>

#include <memory>
#include <string>
#include <vector>

#include "registry/catalog.h"
#include "runner/recipe/yaml.h"

namespace trainrun {

/// What a text describes, read as a recipe would be. Throws RecipeError.
template <class T>
T read_text_spec(const Catalog& catalog, const std::string& text) {
  std::vector<Problem> problems;
  const Value value = parse_yaml(text, std::make_shared<const std::string>("request"), problems);
  Reader reader(catalog, problems);
  auto result = Codec<T>::read(value, reader);
  if (!problems.empty()) throw RecipeError(problems);
  return std::move(*result);
}

/// The same of a part of a request.
template <class T>
T read_spec(const Catalog& catalog, const nlohmann::json& spec) {
  return read_text_spec<T>(catalog, spec.dump());
}

}  // namespace trainrun
