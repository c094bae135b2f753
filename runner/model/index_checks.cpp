#include "runner/model/index_checks.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <torch/nn/modules/embedding.h>

#include <algorithm>

#include "registry/graph/flatten.h"
#include "registry/kinds/dataset_facts.h"
#include "registry/models/language_model.h"
#include "runner/model/example_batch.h"

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

/// The parameter of a language model that says how many rows its table for such a field has; "": it has none for others.
std::string size_key(const std::string& field) {
  return holds_tokens(field) ? "vocab_size" : field.ends_with(kTokenTypeIds) ? "type_vocab_size" : "";
}

/// What a recipe says of layer `index`: the outermost layer around it with the parameter `key`, or else itself.
const Graph::Node& said_in(const FlatGraph& flat, size_t index, const std::string& key) {
  for (size_t i = 0; i < index && !key.empty(); ++i) {
    const FlatLayer& around = flat.layers[i];
    if (around.end > index && around.node->attributes.contains(key)) return *around.node;
  }
  return *flat.layers[index].written;
}

void find_embeddings(const Graph& graph, std::vector<IndexUse>& uses) {
  const FlatGraph flat = flatten(graph);
  for (size_t i = 0; i < flat.layers.size(); ++i) {
    const FlatLayer& layer = flat.layers[i];
    if (!layer.is_leaf() || layer.inputs.empty() || layer.inputs[0] >= graph.num_inputs()) continue;
    const std::string& field = graph.input_names()[layer.inputs[0]];
    const auto size = num_embeddings(layer.node->layer);
    if (size && !field.empty()) {
      const std::string own_key = size_key(field);
      const Graph::Node& written = said_in(flat, i, own_key);
      uses.push_back({field, {0, *size}, written.place, written.path, layer.node->type});
      for (const std::string& key : {std::string("num_embeddings"), own_key}) {
        if (!key.empty() && written.attributes.contains(key)) uses.back().width = written.path + "." + key;
      }
    }
  }
}

at::Tensor example_of(at::IntArrayRef sizes, at::ScalarType dtype) {
  return at::empty(sizes, at::TensorOptions(dtype).device(at::kMeta));
}
at::Tensor example_of(const FieldInfo& field) { return example_of(example_sizes(field), field.dtype); }
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

/// The parameter of a layer that says how many classes it gives, or ""; null: its model's own number.
std::string width_key(const Graph::Node& node) {
  for (const char* key : {"num_classes", "num_labels"}) {
    if (node.attributes.contains(key)) return key;
  }
  for (const char* key : {"out_features", "out_channels"}) {
    if (node.attributes.contains(key) && node.attributes.at(key).is_number_integer()) return key;
  }
  return "";
}

/// The layer that decides how many classes the output in `slot` has; null where none of its parameters does.
const Graph::Node* find_head(const Graph& graph, size_t slot) {
  for (const Graph::Node& node : graph.nodes()) {
    if (std::find(node.outputs.begin(), node.outputs.end(), slot) == node.outputs.end()) continue;
    if (!width_key(node).empty()) return &node;
    if (node.layer.graph) return find_head(*node.layer.graph, node.layer.graph->outputs().at(0));
    return node.inputs.empty() ? nullptr : find_head(graph, node.inputs[0]);
  }
  return nullptr;
}

/// The parameter that says how many classes the output that `use` reads has: "model.layers[2].out_features"; or "".
std::string width_of(const Graph& graph, const IndexUse& use) {
  const Graph::Node* head = use.output ? find_head(graph, *use.output) : nullptr;
  const std::string key = head ? width_key(*head) : "";
  const bool decides =
      !key.empty() && (head->attributes.at(key).is_null() || head->attributes.at(key) == use.range.below);
  return decides ? head->path + "." + key : "";
}

/// What to change, so that the output that `use` reads has `wanted` classes.
std::string change_of_outputs(const IndexUse& use, int64_t wanted) {
  const std::string number = std::to_string(wanted);
  return use.width.empty() ? "the output must have " + number : "write " + use.width + ": " + number;
}

/// How many classes the labels that `use` reads may have, where the data set says so.
std::optional<int64_t> known_classes(const IndexUse& use, const DatasetInfo& info) {
  const FieldInfo* field = info.find(use.field);
  if (!use.is_label || !field || !field->num_classes || use.range.least != 0) return std::nullopt;
  const int64_t number = *field->num_classes;
  return use.range.ignored == number - 1 ? number - 1 : number;  // the last one may be that of what does not count
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
    LayerInputs examples;
    examples.examples = {output, example_of(*target)};
    const auto range = loss.facts(examples).classes;
    if (!range) continue;
    uses.push_back({field, *range, loss.place, loss.path, loss.type, true, slot});
    uses.back().width = width_of(graph, uses.back());
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
                            (use.width.empty() ? "" : "; write " + use.width + ": " + needed)});
  }
  if (!problems.empty()) throw RecipeError(problems);
}

std::string advice_on_outputs(const Recipe& recipe, const Graph& graph, const DatasetInfo& info,
                              const Component<LossKind>& loss) {
  for (const IndexUse& use : index_uses(recipe, graph, info)) {
    if (use.path != loss.path) continue;
    const auto classes = known_classes(use, info);
    if (classes && *classes > use.range.below) return "; " + change_of_outputs(use, *classes);
  }
  return "";
}

namespace {

Problem surplus_problem(const IndexUse& use, int64_t classes) {
  return {use.place, use.path,
          "the output that " + use.type + " reads has " + std::to_string(use.range.below) + " classes, but '" +
              use.field + "' of dataset.train has only " + std::to_string(classes) +
              ", so that the others never come; " + change_of_outputs(use, classes)};
}

}  // namespace

std::vector<Problem> surplus_outputs(const Recipe& recipe, const Graph& graph, const DatasetInfo& info) {
  std::vector<Problem> problems;
  for (const IndexUse& use : index_uses(recipe, graph, info)) {
    const auto classes = known_classes(use, info);
    if (!classes || *classes >= use.range.below) continue;
    if (info.find(use.field)->shape.size() == 1) continue;  // of tokens: vocabularies are often rounded up
    problems.push_back(surplus_problem(use, *classes));
  }
  return problems;
}

std::vector<Problem> surplus_outputs(const Recipe& recipe, const Graph& graph, const DatasetInfo& info,
                                     const Dataset& data) {
  std::vector<Problem> problems;
  const DatasetInfo given = data.info();
  for (const IndexUse& use : index_uses(recipe, graph, info)) {
    if (!is_unchanged(use.field, given, info) || known_classes(use, info)) continue;
    const auto classes = known_classes(use, given);
    if (!classes || *classes >= use.range.below) continue;
    if (data.facts().field(use.field).class_names.empty()) continue;  // of tokens, as above
    problems.push_back(surplus_problem(use, *classes));
  }
  return problems;
}

void check_indices(const Recipe& recipe, const Graph& graph, Dataset& data, const DatasetInfo& info) {
  std::vector<IndexUse> later;
  const DatasetInfo given = data.info();
  for (IndexUse& use : index_uses(recipe, graph, info)) {
    if (!is_unchanged(use.field, given, info)) continue;  // a transform makes it
    const auto classes = given.find(use.field)->num_classes;
    if (use.is_label && classes && *classes < use.range.below) use.declared = classes;
    const at::Tensor held = data.facts().held(use.field);
    if (held.defined()) {
      check_values(use, data, held, {});
    } else {
      later.push_back(use);
    }
  }
  if (auto* checked = dynamic_cast<CheckedDataset*>(&data)) checked->check(std::move(later));
}

}  // namespace trainrun
