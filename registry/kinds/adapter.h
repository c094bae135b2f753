#pragma once

#include <nlohmann/json.hpp>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "registry/graph/built_layer.h"
#include "registry/language/pattern.h"
#include "registry/language/registry.h"
#include "registry/tensors/named_tensors.h"

namespace torch::nn {
class Module;  // only files that make or use one need its (large) header
}

namespace trainrun {

class PeftFolder;  // registry/components/adapters/peft_folder.h

/// What an adapter's `build` receives: one layer that it is to adapt.
struct AdapterInputs {
  std::string name;                               // in the state dict: "model.layers.0.self_attn.q_proj"
  std::string type;                               // "Linear"
  nlohmann::json attributes;                      // the layer's parameters by name, defaults included
  std::shared_ptr<torch::nn::Module> state;       // holds its weights, and knows whether it is being trained
  std::shared_ptr<const Operation> operation;     // what it computes without the adapter
  std::vector<std::string> layers = {};           // all that are adapted, by name
  std::shared_ptr<const PeftFolder> folder = {};  // what `weights` names; null without it
  NamedTensors saved = {};                        // the layer's tensors in that folder: "lora_A.weight"
  std::optional<AdaptableWeight> adaptable = {};  // where its weight is; empty: it cannot be changed

  /// Its parameter of that name ("weight"); undefined if it has none.
  at::Tensor parameter(const std::string& parameter) const;
};

/// What an adapter makes of one layer, whose own parameters are frozen.
struct Adapter {
  /// What is trained, under the names that PEFT gives it within the layer ("lora_A.weight", "ia3_l"). It becomes part
  /// of the layer's state.
  NamedTensors parameters;
  /// Takes the place of the layer's operation.
  std::shared_ptr<const Operation> operation;
  /// Sets those parameters that follow from the layer's initial weights, once these are there. Null: none does.
  std::function<void()> begin = {};
  /// Returns those of the layer's own parameters that differ ("weight", "bias") in a layer without an adapter that
  /// computes the same.
  std::function<NamedTensors()> merged;
  /// What PEFT's adapter_config.json says. Where layers differ in `r`, `rank_pattern` follows; lists are put together.
  /// Null: PEFT has no such adapter.
  nlohmann::json config = {};
};

/// The parameters that every adapter has besides its own.
struct AdapterCommon {
  std::vector<NamePattern> target;
  std::vector<NamePattern> modules_to_save;
  std::optional<std::string> weights;
  static void describe(Fields<AdapterCommon>& f);
};

struct AdapterKind {
  static constexpr const char* kName = "adapter";
  using Inputs = AdapterInputs;
  using Product = Adapter;
  using Common = AdapterCommon;
};
using AdapterRegistry = Registry<AdapterKind>;
const AdapterRegistry& registry_of(const Catalog& catalog, AdapterKind);

/// For each of `names`, whether a pattern chooses it: a plain name ("q_proj", "mlp.up_proj") the names that are it or end
/// with it after a dot, as PEFT has it; any other pattern, or a plain name that is the end of none, the names that it is
/// found in. Throws RecipeError at the place of a pattern that chooses none; `what` they are the names of.
std::vector<bool> names_chosen(const std::vector<NamePattern>& patterns, const std::vector<std::string>& names,
                               const std::string& what);

}  // namespace trainrun
