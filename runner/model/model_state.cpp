// What of a model is chosen by name: parameters that are frozen, layers that are computed again; and its state.
#include <c10/core/GradMode.h>

#include <map>
#include <set>

#include "registry/graph/flatten.h"
#include "registry/graph/layer_decay.h"
#include "runner/model/model.h"
#include "runner/model/model_adapters.h"
#include "runner/model/shared_weights.h"

namespace trainrun {
namespace {

/// Those that `model.freeze` names.
NamedTensors frozen_of(const ModelSection& model, const NamedTensors& parameters) {
  std::vector<std::string> names;
  for (const auto& [name, tensor] : parameters) names.push_back(name);
  const std::vector<bool> chosen = names_with(model.freeze, names);
  NamedTensors frozen;
  for (size_t i = 0; i < names.size(); ++i) {
    if (chosen[i]) frozen.push_back(parameters[i]);
  }
  return frozen;
}

}  // namespace

void Model::freeze(const Recipe& recipe) {
  if (recipe.model.freeze.empty()) return;
  const NamedTensors all = parameters();
  const NamedTensors frozen = frozen_of(recipe.model, all);
  if (!all.empty() && frozen.size() == all.size()) {
    const NamePattern& first = recipe.model.freeze.front();
    throw RecipeError({{first.place, first.path, "every parameter is frozen, so there is nothing to train"}});
  }
  if (recipe.model.unfreeze_at_epoch) return;  // the optimizer, and the ranks, know them from the beginning
  for (const auto& [name, tensor] : frozen) at::Tensor(tensor).requires_grad_(false);
}

Tensors Model::frozen_for_now(const Recipe& recipe, const NamedTensors& named) const {
  Tensors frozen;
  if (!recipe.model.unfreeze_at_epoch) return frozen;
  for (const auto& [name, tensor] : frozen_of(recipe.model, named)) frozen.push_back(tensor);
  return frozen;
}

std::map<std::string, double> Model::lr_scales(const Recipe& recipe) const {
  std::map<std::string, double> scales = graph_->lr_scales();
  const double decay = recipe.optimizer.common.layer_decay;
  if (decay == 1) return scales;
  for (const auto& [name, scale] : layer_decay_scales(*graph_, decay)) {
    scales[name] = scale * (scales.contains(name) ? scales.at(name) : 1);
  }
  return scales;
}

std::vector<std::string> Model::recomputed_layers(const Recipe& recipe) const {
  if (recipe.model.checkpoint_activations.empty()) return {};
  std::vector<std::string> names;
  for (const FlatLayer& layer : flatten(*graph_).layers) names.push_back(layer.name);
  const std::vector<bool> chosen = names_with(recipe.model.checkpoint_activations, names, "layer");
  std::vector<std::string> layers;
  for (size_t i = 0; i < names.size(); ++i) {
    if (chosen[i]) layers.push_back(names[i]);
  }
  return layers;
}

namespace {

/// A module's own parameters, then its buffers, then its children's: the order of Python's state_dict().
void collect_state(const torch::nn::Module& module, const std::string& prefix, NamedTensors& state) {
  for (const auto& item : module.named_parameters(false)) state.emplace_back(prefix + item.key(), item.value());
  for (const auto& item : module.named_buffers(false)) state.emplace_back(prefix + item.key(), item.value());
  for (const auto& item : module.named_children()) collect_state(*item.value(), prefix + item.key() + ".", state);
}

}  // namespace

NamedTensors Model::state_dict() const {
  NamedTensors state;
  collect_state(*graph_, "", state);
  std::erase_if(state, [](const auto& item) { return !item.second.defined(); });
  return state;
}

NamedTensors Model::merged_state_dict() const { return adapters_ ? adapters_->merged(state_dict()) : state_dict(); }

Tensors Model::buffers() const {
  Tensors buffers;
  for (const auto& item : graph_->named_buffers()) {
    if (item.value().defined()) buffers.push_back(item.value());
  }
  return buffers;
}

int64_t Model::num_parameters() const {
  int64_t count = 0;
  for (const auto& [name, parameter] : parameters()) count += parameter.numel();
  return count;
}

std::vector<std::string> Model::load_state_dict(const NamedTensors& tensors, const std::string& origin, bool strict,
                                                bool lacks_adapters) {
  const std::map<std::string, at::Tensor> given(tensors.begin(), tensors.end());
  std::vector<std::string> missing;
  std::vector<std::string> unexpected;
  std::vector<std::string> others;  // of another shape
  std::set<std::string> known;
  auto own = state_dict();
  if (lacks_adapters && adapters_) own = adapters_->base_of(own);
  check_shared_weights(origin, given, own);
  std::set<const at::TensorImpl*> found;  // layers that share a tensor need it once
  for (const auto& [name, tensor] : own) {
    if (given.contains(name)) found.insert(tensor.unsafeGetTensorImpl());
  }
  for (const auto& [name, tensor] : own) {
    known.insert(name);
    const auto it = given.find(name);
    if (it == given.end()) {
      if (found.contains(tensor.unsafeGetTensorImpl())) continue;
      missing.push_back("missing " + name + " " + at::str(tensor.sizes()));
    } else if (it->second.sizes() != tensor.sizes()) {
      others.push_back(name + " is " + at::str(it->second.sizes()) + ", the model's is " + at::str(tensor.sizes()));
    }
  }
  for (const auto& [name, tensor] : tensors) {
    if (!known.contains(name)) unexpected.push_back("unexpected " + name + " " + at::str(tensor.sizes()));
  }
  std::vector<std::string> passed_over = missing;
  passed_over.insert(passed_over.end(), unexpected.begin(), unexpected.end());
  passed_over.insert(passed_over.end(), others.begin(), others.end());
  if (strict && !passed_over.empty()) throw Error(origin + " does not fit the model: " + join(passed_over, "; "));
  if (missing.size() + others.size() == own.size() && !own.empty()) {
    throw Error(origin + " has no tensor of the model: " + join(passed_over, "; "));
  }
  const c10::AutoGradMode no_gradients(false);
  for (const auto& [name, tensor] : own) {
    const auto it = given.find(name);
    if (it != given.end() && it->second.sizes() == tensor.sizes()) at::Tensor(tensor).copy_(it->second);
  }
  return passed_over;
}

NamedTensors Model::parameters() const {
  NamedTensors result;
  std::set<const at::TensorImpl*> seen;  // a parameter that layers share is one, under its first name
  for (const auto& item : graph_->named_parameters()) {
    if (seen.insert(item.value().unsafeGetTensorImpl()).second) result.emplace_back(item.key(), item.value());
  }
  return result;
}

std::vector<std::shared_ptr<torch::nn::Module>> Model::loss_states() const {
  std::vector<std::shared_ptr<torch::nn::Module>> states;
  for (const WeightedLoss& part : losses_) {
    if (part.loss.state) states.push_back(part.loss.state);
  }
  return states;
}

}  // namespace trainrun
