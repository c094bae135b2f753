#include "runner/model/model_adapters.h"

#include <ATen/core/Tensor.h>
#include <c10/core/GradMode.h>
#include <torch/nn/module.h>

#include <algorithm>

#include "registry/components/adapters/peft_folder.h"
#include "registry/graph/flatten.h"
#include "registry/kinds/build.h"
#include "runner/model/saved_adapter.h"

namespace trainrun {
namespace {

constexpr const char* kLayers = "layer with weights";

/// Whether `name` is `layer`, or lies within it.
bool lies_in(const std::string& name, const std::string& layer) {
  return name == layer || name.starts_with(layer + ".");
}

/// What may be meant where `pattern` chose a layer that cannot be adapted: those that multiply by a matrix.
std::string linears_like(const std::string& pattern, const std::vector<const Graph::Node*>& leaves) {
  std::set<std::string> names;
  for (const Graph::Node* leaf : leaves) {
    const auto& adaptable = leaf->layer.adaptable;
    if (adaptable && adaptable->form != AdaptableWeight::Form::kRows) names.insert(leaf->name);
  }
  return suggestion(pattern, {names.begin(), names.end()});
}

/// Makes `tensor` the module's parameter "lora_A.weight", whose parts before the dots are modules within it.
void register_within(torch::nn::Module& module, const std::string& name, const at::Tensor& tensor) {
  const size_t dot = name.find('.');
  if (dot == std::string::npos) {
    module.register_parameter(name, tensor);
    return;
  }
  const std::string child = name.substr(0, dot);
  const auto children = module.named_children();
  const auto* found = children.find(child);
  auto& inner = found ? **found : *module.register_module(child, std::make_shared<torch::nn::Module>());
  register_within(inner, name.substr(dot + 1), tensor);
}

/// `saved` must have what the adapter has, in the same shapes, and nothing else.
void check_saved(const AdaptedLayer& layer, const PeftFolder& folder) {
  std::map<std::string, at::Tensor> left(layer.saved.begin(), layer.saved.end());
  for (const auto& [name, parameter] : layer.adapter.parameters) {
    const auto found = left.extract(name);
    const std::string full = layer.name + "." + name;
    if (found.empty()) throw DataError(folder.path() + ": has no " + full);
    if (found.mapped().sizes() == parameter.sizes()) continue;
    throw DataError(folder.path() + ": " + full + " is " + at::str(found.mapped().sizes()) + ", but must be " +
                    at::str(parameter.sizes()));
  }
  if (left.empty()) return;
  throw DataError(folder.path() + ": " + layer.name + "." + left.begin()->first + " is not a tensor of this adapter");
}

}  // namespace

ModelAdapters::ModelAdapters(const Component<AdapterKind>& adapters, Graph& graph) {
  const FlatGraph flat = flatten(graph);
  std::set<const torch::nn::Module*> seen;
  for (const FlatLayer& layer : flat.layers) {
    const auto& state = layer.node->layer.state;
    if (!layer.is_leaf() || !state || state->parameters().empty() || !seen.insert(state.get()).second) continue;
    leaves_.push_back(layer.node);
    names_.push_back(layer.name);
  }
  for (const auto& item : graph.named_parameters()) weights_[item.key()] = item.value();
  if (adapters.common.weights) {
    load_folder(*adapters.common.weights);
  } else {
    choose(adapters);
  }
  choose_saved_modules(adapters, graph);
  ensures_tying_ = folder_ && folder_->flag("ensure_weight_tying", false);
  part_shared_weights(graph);
  adapt(adapters, graph);
  freeze_others(graph);
}

void ModelAdapters::choose(const Component<AdapterKind>& adapters) {
  std::map<size_t, const NamePattern*> chosen;  // the first pattern that chose a layer
  for (const NamePattern& pattern : adapters.common.target) {
    const std::vector<bool> hits = names_chosen({pattern}, names_, kLayers);
    for (size_t i = 0; i < hits.size(); ++i) {
      if (hits[i]) chosen.try_emplace(i, &pattern);
    }
  }
  for (const auto& [node, pattern] : chosen) targets_.push_back({node, pattern->text, pattern->place, pattern->path});
}

void ModelAdapters::load_folder(const std::string& path) {
  folder_ = std::make_shared<const PeftFolder>(path);
  std::vector<std::string> parameters;
  for (const auto& [name, tensor] : weights_) parameters.push_back(name);
  SavedAdapter saved = assign_to_layers(*folder_, names_, parameters);
  for (const auto& [name, tensor] : saved.whole) {
    const auto own = weights_.find(name);
    if (own == weights_.end() || own->second.sizes() != tensor.sizes()) {
      throw DataError(path + ": " + name + " is " + at::str(tensor.sizes()) + ", but the model's is " +
                      (own == weights_.end() ? "not there" : at::str(own->second.sizes())));
    }
  }
  saved_ = std::move(saved.of_layers);
  whole_ = std::move(saved.whole);
}

void ModelAdapters::choose_saved_modules(const Component<AdapterKind>& adapters, const Graph& graph) {
  std::vector<std::string> candidates;  // containers, too
  for (const FlatLayer& layer : flatten(graph).layers) {
    const bool has_weights =
        std::ranges::any_of(weights_, [&](const auto& item) { return lies_in(item.first, layer.name); });
    if (has_weights) candidates.push_back(layer.name);
  }
  std::vector<bool> chosen(candidates.size());
  if (!adapters.common.modules_to_save.empty()) {
    chosen = names_chosen(adapters.common.modules_to_save, candidates, kLayers);
  }
  std::set<std::string> modules;
  for (size_t i = 0; i < candidates.size(); ++i) {
    if (chosen[i]) modules.insert(candidates[i]);
  }
  for (const auto& [name, tensor] : whole_) {
    const std::string layer = name.substr(0, name.rfind('.'));
    if (!saved_.contains(layer)) modules.insert(layer);  // the weight of an adapted layer stays frozen
  }
  for (const std::string& name : modules) {  // in alphabetical order: a container comes before what lies within it
    const bool is_within = std::ranges::any_of(saved_modules_, [&](const auto& outer) { return lies_in(name, outer); });
    if (!is_within) saved_modules_.push_back(name);
  }
}

/// As in peft, a saved module trains a copy of its own: a weight that it shares with other layers becomes two.
void ModelAdapters::part_shared_weights(const Graph& graph) {
  const auto is_saved = [&](const std::string& layer) {
    return std::ranges::any_of(saved_modules_, [&](const auto& module) { return lies_in(layer, module); });
  };
  std::map<const at::TensorImpl*, std::string> owners;  // the first layer that has each weight
  std::set<const torch::nn::Module*> seen;
  for (const FlatLayer& layer : flatten(graph).layers) {
    const auto& state = layer.node->layer.state;
    if (!layer.is_leaf() || !state || !seen.insert(state.get()).second) continue;
    const auto parameters = state->named_parameters(/*recurse=*/false);
    const at::Tensor* weight = parameters.find("weight");
    if (!weight) continue;
    const auto [owner, is_first] = owners.emplace(weight->unsafeGetTensorImpl(), layer.name);
    if (is_first || !(is_saved(layer.name) || is_saved(owner->second)) || !layer.node->layer.tie) continue;
    if (ensures_tying_) {
      trains_shared_weights_ = true;
      continue;
    }
    const c10::AutoGradMode no_gradients(false);
    const std::string name = layer.name + ".weight";
    parted_[name] = *weight;
    weights_[name] = weight->detach().clone();
    layer.node->layer.tie("weight", weights_[name]);
  }
}

NamedTensors ModelAdapters::base_of(NamedTensors state) const {
  std::erase_if(state, [&](const auto& item) { return has(item.first); });
  for (auto& [name, tensor] : state) {
    if (const auto found = parted_.find(name); found != parted_.end()) tensor = found->second;
  }
  return state;
}

Adapter ModelAdapters::build(const Component<AdapterKind>& adapters, const Target& target,
                             const AdapterInputs& inputs) const {
  try {
    return build_at_place(adapters, inputs);
  } catch (const RecipeError& error) {
    std::vector<Problem> problems = error.problems();
    problems.at(0).place = target.place;
    problems.at(0).path = target.path;
    problems.at(0).message += linears_like(target.pattern, leaves_);
    throw RecipeError(std::move(problems));
  }
}

void ModelAdapters::adapt(const Component<AdapterKind>& adapters, Graph& graph) {
  if (folder_) {
    for (size_t i = 0; i < names_.size(); ++i) {
      if (saved_.contains(names_[i])) targets_.push_back({i, "", adapters.place, adapters.path + ".weights"});
    }
  }
  std::vector<std::string> target_names;
  for (const Target& target : targets_) target_names.push_back(names_[target.node]);
  std::map<const torch::nn::Module*, size_t> adapted;  // index in layers_
  for (const Target& target : targets_) {
    const Graph::Node& node = *leaves_[target.node];
    AdaptedLayer layer;
    layer.name = names_[target.node];
    for (const std::string& module : saved_modules_) {
      if (!lies_in(layer.name, module)) continue;
      throw RecipeError(
          {{target.place, target.path,
            layer.name + " cannot be adapted and be one of modules_to_save; take it out of one of them"}});
    }
    AdapterInputs inputs = {layer.name, node.type, node.attributes, node.layer.state, node.layer.operation};
    inputs.adaptable = node.layer.adaptable;
    inputs.layers = target_names;
    inputs.folder = folder_;
    if (folder_) inputs.saved = layer.saved = saved_.at(layer.name);
    layer.adapter = build(adapters, target, inputs);
    if (folder_) check_saved(layer, *folder_);
    for (const auto& [name, tensor] : layer.adapter.parameters) register_within(*node.layer.state, name, tensor);
    adapted[node.layer.state.get()] = layers_.size();
    layers_.push_back(std::move(layer));
  }
  graph.rewrite([&](const std::string& name, Graph::Node& node) {
    const auto found = adapted.find(node.layer.state.get());
    if (found == adapted.end()) return;
    const Adapter& adapter = layers_[found->second].adapter;
    for (const auto& [own, tensor] : adapter.parameters) own_.insert(name + "." + own);
    if (node.layer.operation == adapter.operation) return;  // a list of layers that is in two places
    node.layer.operation = adapter.operation;
    node.attributes["adapter"] = adapter.config;
    node.type = adapters.type + " " + node.type;
    node.own = {};
    node.layer.adaptable.reset();
  });
}

void ModelAdapters::freeze_others(const Graph& graph) const {
  const auto parameters = graph.named_parameters();
  for (const auto& item : parameters) at::Tensor(item.value()).requires_grad_(false);
  for (const auto& item : parameters) {
    const bool is_saved =
        std::ranges::any_of(saved_modules_, [&](const auto& module) { return lies_in(item.key(), module); });
    if (is_saved || has(item.key())) at::Tensor(item.value()).requires_grad_(true);
  }
}

void ModelAdapters::begin() {
  const c10::AutoGradMode no_gradients(false);
  for (const auto& [name, tensor] : parted_) weights_.at(name).copy_(tensor);
  for (auto& [name, tensor] : whole_) weights_.at(name).copy_(tensor);
  whole_.clear();
  for (AdaptedLayer& layer : layers_) {
    if (!folder_) {
      if (layer.adapter.begin) layer.adapter.begin();
      continue;
    }
    const std::map<std::string, at::Tensor> given(layer.saved.begin(), layer.saved.end());
    for (const auto& [name, parameter] : layer.adapter.parameters) at::Tensor(parameter).copy_(given.at(name));
    layer.saved.clear();
  }
  saved_.clear();
}

NamedTensors ModelAdapters::merged(const NamedTensors& state) const {
  const c10::AutoGradMode no_gradients(false);
  std::map<std::string, at::Tensor> changed;
  for (const AdaptedLayer& layer : layers_) {
    for (const auto& [own, tensor] : layer.adapter.merged()) changed[layer.name + "." + own] = tensor;
  }
  std::map<const at::TensorImpl*, std::string> first_names;  // of weights that change
  for (const auto& [name, tensor] : state) {
    if (changed.contains(name)) first_names.emplace(tensor.unsafeGetTensorImpl(), name);
  }
  NamedTensors result;
  for (const auto& [name, tensor] : state) {
    if (has(name)) continue;
    const auto found = changed.find(name);
    const auto first = first_names.find(tensor.unsafeGetTensorImpl());
    if (found == changed.end() && first != first_names.end()) {
      throw Error("the adapter of " + first->second + " cannot be merged into that weight, which is " + name +
                  ", too; write --format peft");
    }
    result.emplace_back(name, found == changed.end() ? tensor : found->second);
  }
  return result;
}

}  // namespace trainrun
