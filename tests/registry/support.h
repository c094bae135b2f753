#pragma once

#include <memory>
#include <string>
#include <vector>

#include "registry/catalog.h"
#include "registry/graph/graph.h"
#include "runner/recipe/yaml.h"
// After LibTorch, which has a CHECK of its own.
#include <doctest/doctest.h>

namespace trainrun::test {

/// Reads a T from YAML text as a recipe would; faults go to `problems`.
template <class T>
std::optional<T> read(const std::string& yaml, const Catalog& catalog, std::vector<Problem>& problems) {
  const Value value = parse_yaml(yaml, std::make_shared<std::string>("test.yaml"), problems);
  Reader reader(catalog, problems);
  return Codec<T>::read(value, reader);
}

/// The same for text that has no faults.
template <class T>
T read(const std::string& yaml, const Catalog& catalog) {
  std::vector<Problem> problems;
  auto result = read<T>(yaml, catalog, problems);
  for (const Problem& problem : problems) FAIL(problem.to_string());
  REQUIRE(result);
  return std::move(*result);
}

/// What flows into a layer or graph: one tensor of this shape and dtype under the name "x".
inline LayerInputs inputs_like(const at::Tensor& example, const std::string& name = "x") {
  LayerInputs inputs;
  inputs.examples = {example.to(at::kMeta)};
  inputs.names = {name};
  return inputs;
}

}  // namespace trainrun::test
