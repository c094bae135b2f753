#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "registry/graph/graph.h"
#include "registry/kinds/adapter.h"

namespace trainrun {

/// A layer with its adapter.
struct AdaptedLayer {
  std::string name;  // in the state dict
  Adapter adapter;
  NamedTensors saved;  // what the adapter begins with, of the folder that `weights` names; else empty
};

/// The adapters of a model: the layers that have one, and what is trained.
class ModelAdapters {
 public:
  /// Rewrites the layers of `graph` that `adapters` names. From then on only what the adapters add asks for gradients,
  /// and the weights that `modules_to_save` names. Throws RecipeError where a pattern matches no layer, or one that
  /// cannot be adapted; DataError where a folder of weights is damaged or does not fit.
  ModelAdapters(const Component<AdapterKind>& adapters, Graph& graph);

  const std::vector<AdaptedLayer>& layers() const { return layers_; }
  /// The layers whose own weights are trained, too, without those within others of them.
  const std::vector<std::string>& saved_modules() const { return saved_modules_; }
  /// Whether the parameter of that state name is an adapter's.
  bool has(const std::string& parameter) const { return own_.contains(parameter); }
  /// Whether a weight is trained in all the layers that share it, which peft calls ensure_weight_tying.
  bool trains_shared_weights() const { return trains_shared_weights_; }
  /// Of `state`, the model's, what a file of the model without adapters has: no adapters, and weights that layers share
  /// there as one tensor, though modules_to_save has parted them.
  NamedTensors base_of(NamedTensors state) const;
  /// Sets what depends on the model's initial weights, once these are there: loads `weights`, or begins anew.
  void begin();
  /// `state`, the model's, without the adapters: their layers' weights alone compute the same. Throws Error where such a
  /// weight is another layer's, too.
  NamedTensors merged(const NamedTensors& state) const;

 private:
  struct Target {
    size_t node;          // among the leaves
    std::string pattern;  // that chose it; "" where a folder does
    Place place;
    std::string path;
  };
  void choose(const Component<AdapterKind>& adapters);
  void load_folder(const std::string& path);
  Adapter build(const Component<AdapterKind>& adapters, const Target& target, const AdapterInputs& inputs) const;
  void adapt(const Component<AdapterKind>& adapters, Graph& graph);
  void choose_saved_modules(const Component<AdapterKind>& adapters, const Graph& graph);
  void part_shared_weights(const Graph& graph);
  void freeze_others(const Graph& graph) const;

  std::vector<const Graph::Node*> leaves_;  // layers that compute and have weights, each module once
  std::vector<std::string> names_;          // of the leaves
  std::vector<Target> targets_;
  std::shared_ptr<const PeftFolder> folder_;
  std::map<std::string, NamedTensors> saved_;  // by layer
  NamedTensors whole_;                         // the folder's, by state name
  std::vector<AdaptedLayer> layers_;
  std::vector<std::string> saved_modules_;
  std::set<std::string> own_;
  std::map<std::string, at::Tensor> weights_;  // the model's own parameters, by state name
  std::map<std::string, at::Tensor>
      parted_;  // by the state name of a weight: the one that it was until modules_to_save
  bool ensures_tying_ = false;
  bool trains_shared_weights_ = false;
};

}  // namespace trainrun
