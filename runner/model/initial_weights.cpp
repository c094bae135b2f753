#include <algorithm>
#include <filesystem>
#include <map>
#include <regex>

#include "registry/files/pretrained_folder.h"
#include "registry/files/torch_file.h"
#include "runner/model/model.h"
#include "runner/model/model_adapters.h"
#include "runner/model/pretrained_weights.h"

namespace trainrun {
namespace {

/// One tensor as the patterns of `rename` leave it; nothing where they leave it out.
std::optional<std::pair<std::string, at::Tensor>> renamed_one(std::string name, at::Tensor tensor,
                                                              const WeightsSection& weights,
                                                              const std::vector<std::regex>& patterns) {
  bool left_out = false;
  for (size_t i = 0; i < patterns.size(); ++i) {
    const std::regex& compiled = patterns[i];
    const auto& replacement = weights.rename.entries[i].second;
    if (!std::regex_search(name, compiled)) continue;
    if (!replacement) {
      left_out = true;
    } else if (const auto* text = std::get_if<std::string>(&*replacement)) {
      name = std::regex_replace(name, compiled, *text);
    } else {
      const auto& more = std::get<RenameSection>(*replacement);
      if (more.transpose && tensor.dim() != 2) {
        throw Error(weights.path + ": rename would transpose '" + name + "', which is " + at::str(tensor.sizes()) +
                    " and does not have two dimensions");
      }
      if (more.transpose) tensor = tensor.t();
      if (more.to) name = std::regex_replace(name, compiled, *more.to);
    }
  }
  if (left_out) return std::nullopt;
  return std::pair(std::move(name), std::move(tensor));
}

/// The tensors as `rename` makes them.
NamedTensors renamed(const NamedTensors& tensors, const WeightsSection& weights) {
  NamedTensors result;
  std::map<std::string, std::string> old_names;
  std::vector<std::regex> patterns;
  for (const auto& [pattern, unused] : weights.rename.entries) patterns.emplace_back(pattern);
  for (const auto& [old_name, tensor] : tensors) {
    auto item = renamed_one(old_name, tensor, weights, patterns);
    if (!item) continue;
    const auto [it, is_new] = old_names.emplace(item->first, old_name);
    if (!is_new) {
      throw Error(weights.path + ": rename makes '" + it->second + "' and '" + old_name + "' both '" + item->first +
                  "'");
    }
    result.push_back(std::move(*item));
  }
  return result;
}

}  // namespace

std::vector<std::string> load_initial_weights(const Recipe& recipe, Model& model) {
  std::vector<std::string> passed_over = load_pretrained(model);
  if (!recipe.model.weights) {
    if (model.adapters()) model.adapters()->begin();
    return passed_over;
  }
  WeightsSection weights;
  if (const auto* path = std::get_if<std::string>(&*recipe.model.weights)) {
    weights.path = *path;
  } else {
    weights = std::get<WeightsSection>(*recipe.model.weights);
  }
  if (!std::filesystem::exists(weights.path)) throw Error("model.weights: there is no " + weights.path);
  const bool is_folder = std::filesystem::is_directory(weights.path);
  NamedTensors tensors = is_folder ? read_pretrained_folder(weights.path) : load_weights(weights.path, weights.key);
  tensors = renamed(tensors, weights);
  if (is_folder) {
    std::vector<std::string> names;
    for (const auto& [name, tensor] : model.state_dict()) names.push_back(name);
    tensors = with_names_of(tensors, names);
  }
  const auto is_of_adapter = [&](const auto& item) { return model.adapters() && model.adapters()->has(item.first); };
  const bool lacks_adapters = std::ranges::none_of(tensors, is_of_adapter);
  const std::vector<std::string> more = model.load_state_dict(tensors, weights.path, weights.strict, lacks_adapters);
  passed_over.insert(passed_over.end(), more.begin(), more.end());
  if (model.adapters() && lacks_adapters) model.adapters()->begin();
  return passed_over;
}

}  // namespace trainrun
