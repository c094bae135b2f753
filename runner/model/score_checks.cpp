#include "runner/model/score_checks.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>

#include "registry/graph/flatten.h"

namespace trainrun {
namespace {

using Scores = LossFacts::Scores;

/// Where the graph's `slot` lies in `flat`; nothing for the graph's own inputs.
std::optional<size_t> flat_slot(const Graph& graph, const FlatGraph& flat, size_t slot) {
  for (const Graph::Node& node : graph.nodes()) {
    const auto output = std::ranges::find(node.outputs, slot);
    if (output == node.outputs.end()) continue;
    const auto layer = std::ranges::find(flat.layers, &node, &FlatLayer::node);
    return layer->outputs[static_cast<size_t>(output - node.outputs.begin())];
  }
  return std::nullopt;
}

/// Whether its outputs are sums of products, of any size: neither probabilities nor logarithms of some.
bool gives_any_numbers(std::string_view type) {
  constexpr auto kTypes = std::to_array<std::string_view>(
      {"Linear", "TransposedLinear", "Bilinear", "Conv1d", "Conv2d", "Conv3d", "ConvTranspose1d", "ConvTranspose2d",
       "ConvTranspose3d", "LayerNorm", "BatchNorm1d", "BatchNorm2d", "BatchNorm3d"});
  return std::ranges::find(kTypes, type) != kTypes.end();
}

/// Whether its outputs are numbers of its input, but for their places.
bool keeps_numbers(std::string_view type) {
  constexpr auto kTypes = std::to_array<std::string_view>(
      {"Squeeze", "Unsqueeze", "Flatten", "Unflatten", "Reshape", "Permute", "Transpose", "Select", "Identity"});
  return std::ranges::find(kTypes, type) != kTypes.end();
}

/// The layer that computes what lies in `slot`; null where that is an input.
const FlatLayer* layer_of(const FlatGraph& flat, size_t slot) {
  for (auto layer = flat.layers.rbegin(); layer != flat.layers.rend(); ++layer) {
    if (!layer->is_leaf() || std::ranges::find(layer->outputs, slot) == layer->outputs.end()) continue;
    if (!keeps_numbers(layer->node->type) || layer->inputs.empty()) return &*layer;
    slot = layer->inputs[0];  // of a layer before it
  }
  return nullptr;
}

/// What to write in place of `loss`, which reads `scores`, or behind the last layer.
std::string cure_of(const Component<LossKind>& loss, Scores scores) {
  if (scores == Scores::kProbabilities) return "BCEWithLogitsLoss, or put a Sigmoid behind it";
  const std::string dim = std::to_string(loss.attributes.value("class_dim", int64_t{1}));
  return "CrossEntropyLoss, or put {type: LogSoftmax, dim: " + dim + "} behind it";
}

}  // namespace

std::vector<Problem> raw_outputs(const Recipe& recipe, const Graph& graph) {
  std::vector<Problem> problems;
  const FlatGraph flat = flatten(graph);
  for (const Component<LossKind>& loss : recipe.loss) {
    const LossFacts facts = loss.facts({});
    const bool is_of_one = facts.of_one == Scores::kProbabilities;
    if (!is_of_one && facts.of_classes != Scores::kLogProbabilities) continue;
    const Names& names = loss.common.inputs;
    const auto own_slot = names.empty() ? std::optional(graph.outputs()[0]) : graph.slot(names[0]);
    const auto slot = own_slot ? flat_slot(graph, flat, *own_slot) : std::nullopt;
    const FlatLayer* layer = slot ? layer_of(flat, *slot) : nullptr;
    if (!layer || !gives_any_numbers(layer->node->type)) continue;
    const Graph::Node& written = *layer->written;
    const std::string what =
        layer->node == &written ? layer->node->type : written.type + ", which ends with a " + layer->node->type;
    const Scores scores = is_of_one ? Scores::kProbabilities : Scores::kLogProbabilities;
    problems.push_back({loss.place, loss.path,
                        loss.type + " reads " + (is_of_one ? "probabilities" : "logarithms of probabilities") +
                            ", but " + written.path + " (" + what + ") gives any numbers; write " +
                            cure_of(loss, scores)});
  }
  return problems;
}

}  // namespace trainrun
