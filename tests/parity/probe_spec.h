#pragma once

#include <nlohmann/json.hpp>

#include <memory>
#include <string>
#include <vector>

#include "registry/catalog.h"
#include "runner/recipe/yaml.h"

namespace trainrun {

/// What a part of a request describes, read as a recipe would be. Throws RecipeError.
template <class T>
T read_spec(const Catalog& catalog, const nlohmann::json& spec) {
  std::vector<Problem> problems;
  const Value value = parse_yaml(spec.dump(), std::make_shared<const std::string>("request"), problems);
  Reader reader(catalog, problems);
  auto result = Codec<T>::read(value, reader);
  if (!problems.empty()) throw RecipeError(problems);
  return std::move(*result);
}

}  // namespace trainrun
