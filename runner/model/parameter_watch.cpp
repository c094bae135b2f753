#include "runner/model/parameter_watch.h"

#include "registry/graph/flatten.h"
#include "registry/kinds/changes_parameters.h"
#include "registry/kinds/layer_shapes.h"
#include "registry/tensors/component_error.h"

namespace trainrun {

std::set<const at::TensorImpl*> parameters_changed_by_layers(const Graph& graph) {
  std::set<const at::TensorImpl*> changed;
  for (const auto& module : graph.modules()) {
    const auto* changing = dynamic_cast<const ChangesParameters*>(module.get());
    if (!changing || !changing->changes_parameters()) continue;
    for (const at::Tensor& own : module->parameters(/*recurse=*/false)) changed.insert(own.unsafeGetTensorImpl());
  }
  return changed;
}

ParameterWatch::ParameterWatch(const Graph& graph) : graph_(graph) {
  const auto changed = parameters_changed_by_layers(graph);
  for (const auto& item : graph.named_parameters()) {
    if (!changed.contains(item.value().unsafeGetTensorImpl())) parameters_.emplace_back(item.key(), item.value());
  }
  versions_.resize(parameters_.size());
}

void ParameterWatch::begin() {
  for (size_t i = 0; i < parameters_.size(); ++i) versions_[i] = parameters_[i].second._version();
}

void ParameterWatch::end() const {
  for (size_t i = 0; i < parameters_.size(); ++i) {
    if (parameters_[i].second._version() != versions_[i]) refuse(parameters_[i].first);
  }
}

void ParameterWatch::refuse(const std::string& parameter) const {
  ComponentName holder;
  size_t longest = 0;
  for (const FlatLayer& layer : flatten(graph_).layers) {
    const bool holds = layer.name.empty() || parameter.starts_with(layer.name + ".");
    if (!layer.is_leaf() || !holds || layer.name.size() < longest) continue;
    longest = layer.name.size();
    holder = name_of(*layer.written);
  }
  const std::string message =
      "the forward pass changes the parameter " + parameter +
      ", which only the optimizer may do where several ranks train: each would change its own copy, by its own batch. "
      "Write distributed_type: 'NO' and num_processes: 1; or keep what changes in a buffer; or, if it is changed alike "
      "on every rank, derive the module from ChangesParameters (registry/kinds/changes_parameters.h)";
  try {
    throw LayerError(message);
  } catch (const LayerError& error) {
    throw_component_error(holder, {}, error);
  }
}

}  // namespace trainrun
