#pragma once

#include <memory>
#include <string>
#include <vector>

#include "registry/catalog.h"
#include "registry/graph/graph.h"
#include "registry/kinds/graph_builder.h"
#include "runner/recipe/yaml.h"
#include "tests/doctest.h"
#include "tests/support.h"

namespace trainrun::test {

/// The built-in components.
inline const Catalog& catalog() {
  static const Catalog catalog = builtins();
  return catalog;
}

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

/// The graph of a list of layers.
inline std::shared_ptr<Graph> build(const std::string& yaml, const LayerInputs& inputs) {
  return build_graph(read<LayerList>(yaml, catalog()), inputs);
}
inline std::shared_ptr<Graph> build(const std::string& yaml, const at::Tensor& example) {
  return build(yaml, inputs_like(example));
}

/// Why the graph of a list of layers cannot be built; "" if it can.
inline std::string fault(const std::string& yaml, const LayerInputs& inputs) {
  try {
    build(yaml, inputs);
  } catch (const RecipeError& error) {
    return error.what();
  }
  return "";
}
inline std::string fault(const std::string& yaml, const at::Tensor& example) {
  return fault(yaml, inputs_like(example));
}

}  // namespace trainrun::test
