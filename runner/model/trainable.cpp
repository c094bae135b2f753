#include "runner/model/trainable.h"

#include <algorithm>

#include "registry/language/name_regex.h"

namespace trainrun {
namespace {

bool has_parameters(const Graph::Node& node) {
  if (!node.layer.state) return false;
  const auto parameters = node.layer.state->parameters();
  return std::any_of(parameters.begin(), parameters.end(),
                     [](const at::Tensor& parameter) { return parameter.requires_grad(); });
}

/// By slot of the graph: whether a gradient can flow from it to a parameter. None flows through integers.
std::vector<bool> carry_gradients(const Graph& graph) {
  std::vector<bool> carries(graph.num_slots());
  for (const Graph::Node& node : graph.nodes()) {
    const bool any_input =
        std::any_of(node.inputs.begin(), node.inputs.end(), [&](size_t slot) { return carries[slot]; });
    if (!any_input && !has_parameters(node)) continue;
    for (size_t i = 0; i < node.outputs.size(); ++i)
      carries[node.outputs[i]] = at::isFloatingType(node.output_dtypes[i]);
  }
  return carries;
}

}  // namespace

void check_trainable(const Recipe& recipe, const Model& model) {
  const auto parameters = model.parameters();
  if (parameters.empty()) {
    const bool any = !recipe.model.layers.layers.empty();
    throw RecipeError({{any ? recipe.model.layers.layers.front().component.place : Place(), "model.layers",
                        "the model has no parameters, so there is nothing to train; add a layer that has some, such as "
                        "Linear or Conv2d"}});
  }
  const std::vector<bool> carries = carry_gradients(model.graph());
  for (size_t i = 0; i < recipe.loss.size(); ++i) {
    const std::vector<size_t> slots = model.loss_slots(i);
    if (std::any_of(slots.begin(), slots.end(), [&](size_t slot) { return carries[slot]; })) return;
  }
  if (recipe.loss.empty()) return;
  throw RecipeError(
      {{recipe.loss[0].place, recipe.loss[0].path,
        "no parameter of the model has an influence on what the loss reads, so there is nothing to train"}});
}

std::vector<Problem> idle_groups(const Recipe& recipe, const Model& model) {
  const std::vector<GroupSpec>& groups = recipe.optimizer.common.param_groups;
  std::vector<Regex> patterns;
  for (const GroupSpec& group : groups) patterns.push_back(regex_of(group.match));
  std::vector<bool> has_any(groups.size());
  std::vector<std::vector<std::string>> takers(groups.size());  // of what the pattern matches
  for (const auto& [name, tensor] : model.parameters()) {
    if (!tensor.requires_grad()) continue;
    size_t first = groups.size();
    for (size_t i = 0; i < groups.size(); ++i) {
      if (!patterns[i].is_in(name)) continue;
      first = std::min(first, i);
      const std::string taker = "param_groups[" + std::to_string(first) + "]";
      if (first == i) {
        has_any[i] = true;
      } else if (std::ranges::find(takers[i], taker) == takers[i].end()) {
        takers[i].push_back(taker);
      }
    }
  }
  std::vector<Problem> notes;
  for (size_t i = 0; i < groups.size(); ++i) {
    if (has_any[i]) continue;
    const std::string why = takers[i].empty()
                                ? "matches only parameters that are frozen"
                                : "matches only parameters that are in " + join(takers[i], " and ") +
                                      ", since the first pattern that matches wins; write this group before " +
                                      (takers[i].size() == 1 ? "that one" : "those");
    notes.push_back({groups[i].place, recipe.optimizer.path + ".param_groups[" + std::to_string(i) + "].match",
                     "'" + groups[i].match + "' changes nothing: it " + why});
  }
  return notes;
}

}  // namespace trainrun
