#include "registry/models/language_model.h"

#include <c10/core/GradMode.h>

#include <algorithm>
#include <map>
#include <set>

#include "registry/graph/flatten.h"
#include "registry/graph/graph.h"
#include "registry/graph/shape_mode.h"

namespace trainrun {
namespace {

using nlohmann::json;

bool is_role(const std::string& name, const std::vector<std::string>& roles) {
  return std::find(roles.begin(), roles.end(), name) != roles.end();
}

void check_role(const LayerInputs& inputs, size_t i, at::IntArrayRef ids) {
  const at::Tensor& example = inputs.examples[i];
  const bool holds_integers = !at::isFloatingType(example.scalar_type()) && example.scalar_type() != at::kBool;
  if (example.dim() != 2 || example.sizes() != ids || !holds_integers) {
    throw LayerError(inputs.names[i] + " must be integers [N, T], like input_ids, but is " +
                     shape_text(example.sizes()) + " of " + at::toString(example.scalar_type()));
  }
}

}  // namespace

LayerInputs by_role(const LayerInputs& in, const std::vector<std::string>& roles) {
  LayerInputs result = in;
  result.names.resize(in.examples.size());
  const size_t own = in.num_own();
  const bool has_fields = own < in.examples.size();  // found by their names, after the layer's usual input
  if (has_fields) {
    const bool has_ids = std::find(result.names.begin() + static_cast<std::ptrdiff_t>(own), result.names.end(),
                                   kInputIds) != result.names.end();
    result.names[0] = has_ids ? "" : kInputIds;
  } else if (!std::all_of(result.names.begin(), result.names.end(),
                          [&](const std::string& name) { return is_role(name, roles); })) {
    if (own > roles.size()) {
      throw LayerError("it reads " + join(roles) + ", but gets " + std::to_string(own) + " inputs");
    }
    std::copy_n(roles.begin(), own, result.names.begin());
  }
  if (!has_role(result, kInputIds)) throw LayerError("it needs input_ids; write inputs: [" + join(roles) + "]");
  const auto ids = std::find(result.names.begin(), result.names.end(), kInputIds);
  const at::IntArrayRef sizes = result.examples[static_cast<size_t>(ids - result.names.begin())].sizes();
  for (size_t i = 0; i < result.names.size(); ++i) {
    if (!result.names[i].empty()) check_role(result, i, sizes);
  }
  result.set_num_own(result.examples.size());
  return result;
}

bool has_role(const LayerInputs& inputs, const std::string& role) { return is_role(role, inputs.names); }

Names with_roles(const std::string& first, const LayerInputs& inputs, const std::vector<std::string>& names) {
  Names result = {first};
  for (const std::string& name : names) {
    if (has_role(inputs, name) && name != first) result.push_back(name);
  }
  return result;
}

json listed(const Names& names) { return std::vector<std::string>(names); }

void add_activation(Listing& layers, const std::string& name, const std::string& activation, const ModelConfig& config,
                    const std::string& key) {
  static const std::map<std::string, std::pair<const char*, bool>> activations = {
      {"gelu", {"GELU", false}},     {"gelu_new", {"GELU", true}},   {"gelu_pytorch_tanh", {"GELU", true}},
      {"gelu_fast", {"GELU", true}}, {"relu", {"ReLU", false}},      {"silu", {"SiLU", false}},
      {"swish", {"SiLU", false}},    {"tanh", {"Tanh", false}},      {"sigmoid", {"Sigmoid", false}},
      {"mish", {"Mish", false}},     {"linear", {"Identity", false}}};
  const auto found = activations.find(activation);
  if (found == activations.end()) {
    std::vector<std::string> names;
    for (const auto& [word, unused] : activations) names.push_back(word);
    config.fail(key, "there is no activation \"" + activation + "\"" + suggestion(activation, names));
  }
  json parameters = {{"name", name}};
  if (found->second.second) parameters["approximate"] = "tanh";
  layers.add(found->second.first, parameters);
}

void add_positions(Listing& layers, const LayerInputs& inputs, const json& parameters) {
  if (has_role(inputs, kPositionIds)) return;
  json positions = parameters;
  positions["name"] = kPositionIds;
  positions["inputs"] = kInputIds;
  layers.add("PositionIds", positions);
}

void draw_language_weights(const Graph& graph, double std) {
  if (ShapeMode::active()) return;
  static const std::set<std::string> types = {"Linear", "Embedding", "TransposedLinear"};
  const c10::AutoGradMode no_gradients(false);
  std::set<const at::TensorImpl*> seen;  // a weight in two places is drawn once
  for (const FlatLayer& layer : flatten(graph).layers) {
    if (!layer.is_leaf() || !types.contains(layer.node->type)) continue;
    for (const auto& item : layer.node->layer.state->named_parameters()) {
      at::Tensor parameter = item.value();
      if (!seen.insert(parameter.unsafeGetTensorImpl()).second) continue;
      if (item.key() == "weight") {
        parameter.normal_(0, std);
      } else {
        parameter.zero_();
      }
    }
    const json padding = layer.node->attributes.value("padding_idx", json());
    if (layer.node->type == "Embedding" && padding.is_number_integer()) {
      (*layer.node->layer.state->named_parameters().find("weight"))[padding.get<int64_t>()].zero_();
    }
  }
}

int64_t layer_count(ModelConfig& config, const std::string& key, const std::optional<int64_t>& own, int64_t fallback) {
  const int64_t number = config.integer(key, own, fallback);
  if (number > kMostLayers) config.fail(key, "must be at most " + std::to_string(kMostLayers));
  return number;
}

void require_heads(int64_t features, int64_t heads) {
  if (features % heads == 0) return;
  throw LayerError(std::to_string(heads) + " heads of the attention do not divide the " + std::to_string(features) +
                   " features");
}

Layer language_model(std::shared_ptr<Graph> graph, const ModelConfig& config) {
  graph->register_module(ModelRecord::kName, std::make_shared<ModelRecord>(config));
  return whole_model(std::move(graph));
}

}  // namespace trainrun
