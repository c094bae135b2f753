#include "runner/model/index_checks.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <torch/nn/modules/embedding.h>

#include "registry/graph/flatten.h"

namespace trainrun {
namespace {

/// How many vectors an Embedding or EmbeddingBag has; nothing for other layers.
std::optional<int64_t> num_embeddings(const Layer& layer) {
  const auto* module = layer.state.get();
  at::Tensor table;
  if (const auto* embedding = dynamic_cast<const torch::nn::EmbeddingImpl*>(module)) table = embedding->weight;
  if (const auto* bags = dynamic_cast<const torch::nn::EmbeddingBagImpl*>(module)) table = bags->weight;
  if (!table.defined() || table.dim() != 2 || table.size(0) == 0) return std::nullopt;
  return table.size(0);
}

void find_embeddings(const Graph& graph, std::vector<IndexUse>& uses) {
  for (const FlatLayer& layer : flatten(graph).layers) {
    if (!layer.is_leaf() || layer.inputs.empty() || layer.inputs[0] >= graph.num_inputs()) continue;
    const std::string& field = graph.input_names()[layer.inputs[0]];
    const auto size = num_embeddings(layer.node->layer);
    if (size && !field.empty()) {
      const Graph::Node& written = *layer.written;
      uses.push_back({field, {0, *size}, written.place, written.path, layer.node->type});
    }
  }
}

at::Tensor example_of(at::IntArrayRef sizes, at::ScalarType dtype) {
  return at::empty(sizes, at::TensorOptions(dtype).device(at::kMeta));
}
at::Tensor example_of(const FieldInfo& field) {
  std::vector<int64_t> sizes = {kExampleBatch};
  sizes.insert(sizes.end(), field.shape.begin(), field.shape.end());
  return example_of(sizes, field.dtype);
}
/// Of what a layer gives; undefined for the graph's own inputs.
at::Tensor example_of(const Graph& graph, size_t slot) {
  for (const Graph::Node& node : graph.nodes()) {
    for (size_t i = 0; i < node.outputs.size(); ++i) {
      if (node.outputs[i] == slot) return example_of(node.output_shapes[i], node.output_dtypes[i]);
    }
  }
  return {};
}

/// Whether the model is given the field as the data set has it.
bool is_unchanged(const std::string& field, const DatasetInfo& data, const DatasetInfo& info) {
  const FieldInfo* before = data.find(field);
  const FieldInfo* after = info.find(field);
  return before && after && before->dtype == after->dtype && before->shape == after->shape;
}

}  // namespace

std::vector<IndexUse> index_uses(const Recipe& recipe, const Graph& graph, const DatasetInfo& info) {
  std::vector<IndexUse> uses;
  for (const Component<LossKind>& loss : recipe.loss) {
    const Names& names = loss.common.inputs;
    if (names.size() == 1) continue;
    const std::string field = names.empty() ? info.target : names[1];
    const auto slot = names.empty() ? std::optional(graph.outputs()[0]) : graph.slot(names[0]);
    const at::Tensor output = slot ? example_of(graph, *slot) : at::Tensor();
    const FieldInfo* target = info.find(field);
    const auto taken = graph.slot(field);  // by a layer of that name
    if (!output.defined() || !target || (taken && *taken >= info.fields.size())) continue;
    const auto range = class_range(loss, output, example_of(*target));
    if (range) uses.push_back({field, *range, loss.place, loss.path, loss.type, true});
  }
  find_embeddings(graph, uses);
  return uses;
}

void check_known_indices(const Recipe& recipe, const Graph& graph, const DatasetInfo& info) {
  std::vector<Problem> problems;
  for (const IndexUse& use : index_uses(recipe, graph, info)) {
    const FieldInfo* field = info.find(use.field);
    if (use.is_label || !field || !field->num_classes || *field->num_classes <= use.range.below) continue;
    const std::string needed = std::to_string(*field->num_classes);
    problems.push_back({use.place, use.path,
                        "num_embeddings is " + std::to_string(use.range.below) + ", but the indices in '" + use.field +
                            "' go up to " + std::to_string(*field->num_classes - 1) +
                            "; write num_embeddings: " + needed});
  }
  if (!problems.empty()) throw RecipeError(problems);
}

void check_indices(const Recipe& recipe, const Graph& graph, Dataset& data, const DatasetInfo& info) {
  std::vector<IndexUse> later;
  const DatasetInfo given = data.info();
  for (const IndexUse& use : index_uses(recipe, graph, info)) {
    if (!is_unchanged(use.field, given, info)) continue;  // a transform makes it
    const at::Tensor held = held_field(data, use.field);
    if (held.defined()) {
      check_values(use, data, held, {});
    } else {
      later.push_back(use);
    }
  }
  if (auto* checked = dynamic_cast<CheckedDataset*>(&data)) checked->check(std::move(later));
}

}  // namespace trainrun
