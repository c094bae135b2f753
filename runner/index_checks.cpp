#include "runner/index_checks.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/aminmax.h>
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

/// Where `values` are not in the range: a mask of their shape.
at::Tensor outside(const at::Tensor& values, const IndexRange& range) {
  const at::Tensor wrong = values.lt(range.least).logical_or_(values.ge(range.below));
  return range.ignored ? wrong.logical_and_(values.ne(*range.ignored)) : wrong;
}

/// What to do about values from `least` to `most`.
std::string cure(const IndexUse& use, int64_t least, int64_t most) {
  if (!use.is_label) {
    return least < 0 ? "indices count from 0" : "write num_embeddings: " + std::to_string(most + 1) + " or more";
  }
  if (least == 1 && most == use.range.below) {
    return "classes count from 0 and these from 1; subtract 1, or have a table number them by the column's type "
           "category";
  }
  if (least < 0) {
    return "classes count from 0" + std::string(use.range.ignored ? "; those of ignore_index do not count" : "");
  }
  return "classes go up to " + std::to_string(most) + ", so the output must have " + std::to_string(most + 1);
}

/// "the output that CrossEntropyLoss (a.yaml:9:7: loss) reads has 10 classes"
std::string bound_text(const IndexUse& use) {
  const std::string where = use.place.to_string();
  const std::string reader = use.type + " (" + (where.empty() ? "" : where + ": ") + use.path + ")";
  const std::string bound = std::to_string(use.range.below);
  return use.is_label ? "the output that " + reader + " reads has " + bound + " classes"
                      : reader + " has num_embeddings " + bound;
}

/// Throws if a value of `values` [N, …], the samples `samples` (undefined: 0 to N - 1), is outside.
void check_values(const IndexUse& use, const Dataset& data, const at::Tensor& values, const at::Tensor& samples) {
  if (values.numel() == 0 || at::isFloatingType(values.scalar_type())) return;
  const auto [low, high] = at::aminmax(values);
  const auto least = low.item<int64_t>();
  const auto most = high.item<int64_t>();
  if (least >= use.range.least && most < use.range.below) return;
  const at::Tensor places = outside(values, use.range).nonzero();
  if (places.size(0) == 0) return;
  const auto row = places[0][0].item<int64_t>();
  at::Tensor value = values;
  for (int64_t dim = 0; dim < places.size(1); ++dim) value = value[places[0][dim].item<int64_t>()];
  const int64_t sample = samples.defined() ? samples[row].item<int64_t>() : row;
  throw DataError(place_of_sample(data, sample, use.field) + ": " + std::to_string(value.item<int64_t>()) +
                  " is not from " + std::to_string(use.range.least) + " to " + std::to_string(use.range.below - 1) +
                  ": " + bound_text(use) + "; " + cure(use, least, most));
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

Batch CheckedDataset::get(const at::Tensor& indices) const {
  Batch batch = base_->get(indices);
  for (const IndexUse& use : uses_) check_values(use, *this, batch.at(use.field), indices);
  return batch;
}

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
