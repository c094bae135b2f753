#include "runner/model/saved_adapter.h"

#include <algorithm>
#include <optional>
#include <set>

#include "registry/language/error.h"

namespace trainrun {
namespace {

/// The model's weight of an adapted layer, which peft saves beside the adapter of an embedding.
constexpr std::string_view kBaseLayer = "base_layer.";

/// What a folder's name becomes: without the first so many letters, and with a prefix.
struct Renaming {
  size_t dropped = 0;
  std::string prefix;
  std::string of(const std::string& name) const { return prefix + name.substr(std::min(dropped, name.size())); }
};

struct Owner {
  std::string layer;
  std::string own;  // the tensor's name within the layer
};

/// The layer whose name is the longest beginning of `name`.
std::optional<Owner> owner_of(const std::string& name, const std::set<std::string>& layers) {
  for (size_t dot = name.rfind('.'); dot != std::string::npos && dot > 0; dot = name.rfind('.', dot - 1)) {
    if (layers.contains(name.substr(0, dot))) return Owner{name.substr(0, dot), name.substr(dot + 1)};
  }
  return std::nullopt;
}

/// All beginnings of `name` that end with a dot, up to the first few: "", "model.", "model.layers.".
std::vector<std::string> beginnings(const std::string& name) {
  constexpr size_t kMost = 3;
  std::vector<std::string> result = {""};
  for (size_t dot = name.find('.'); dot != std::string::npos && result.size() <= kMost; dot = name.find('.', dot + 1)) {
    result.push_back(name.substr(0, dot + 1));
  }
  return result;
}

Renaming find_renaming(const NamedTensors& tensors, const std::set<std::string>& layers) {
  std::set<std::string> prefixes;
  for (const std::string& layer : layers) {
    for (const std::string& beginning : beginnings(layer)) prefixes.insert(beginning);
  }
  std::vector<Renaming> candidates;
  for (const std::string& beginning : beginnings(tensors.at(0).first)) candidates.push_back({beginning.size(), ""});
  for (const std::string& prefix : prefixes) candidates.push_back({0, prefix});
  const auto fits = [&](const Renaming& renaming) {
    return std::ranges::count_if(
        tensors, [&](const auto& item) { return owner_of(renaming.of(item.first), layers).has_value(); });
  };
  return *std::ranges::max_element(candidates, {}, fits);  // the first of the best: the names as they are, if they do
}

}  // namespace

SavedAdapter assign_to_layers(const PeftFolder& folder, const std::vector<std::string>& layers,
                              const std::vector<std::string>& parameters) {
  const std::set<std::string> known(layers.begin(), layers.end());
  const std::set<std::string> weights(parameters.begin(), parameters.end());
  const Renaming renaming = find_renaming(folder.tensors(), known);
  SavedAdapter saved;
  for (const auto& [name, tensor] : folder.tensors()) {
    const std::string own_name = renaming.of(name);
    const auto owner = owner_of(own_name, known);
    if (weights.contains(own_name)) {
      saved.whole.emplace_back(own_name, tensor);
    } else if (!owner) {
      throw DataError(folder.path() + ": '" + name + "' belongs to no layer of the model" + suggestion(name, layers));
    } else if (owner->own.starts_with(kBaseLayer)) {
      saved.whole.emplace_back(owner->layer + "." + owner->own.substr(kBaseLayer.size()), tensor);
    } else {
      saved.of_layers[owner->layer].emplace_back(owner->own, tensor);
    }
  }
  if (saved.of_layers.empty()) throw DataError(folder.path() + ": has no tensor of an adapter");
  return saved;
}

}  // namespace trainrun
