#include "runner/model/initial_weights.h"

#include <algorithm>
#include <filesystem>
#include <map>

#include "registry/formats/web/named_sources.h"
#include "registry/formats/web/network.h"
#include "registry/graph/flatten.h"
#include "registry/language/name_regex.h"
#include "registry/tensors/files/pretrained_folder.h"
#include "registry/tensors/files/torch_file.h"
#include "runner/model/model_adapters.h"
#include "runner/model/model_records.h"
#include "runner/model/pretrained_weights.h"

namespace trainrun {
namespace {

/// One tensor as the patterns of `rename` leave it; nothing where they leave it out.
std::optional<std::pair<std::string, at::Tensor>> renamed_one(std::string name, at::Tensor tensor,
                                                              const WeightsSection& weights,
                                                              const std::vector<Regex>& patterns) {
  bool left_out = false;
  for (size_t i = 0; i < patterns.size(); ++i) {
    const Regex& compiled = patterns[i];
    const auto& replacement = weights.rename.entries[i].second;
    if (!compiled.is_in(name)) continue;
    if (!replacement) {
      left_out = true;
    } else if (const auto* text = std::get_if<std::string>(&*replacement)) {
      name = compiled.replaced(name, *text);
    } else {
      const auto& more = std::get<RenameSection>(*replacement);
      if (more.transpose && tensor.dim() != 2) {
        throw Error(weights.path + ": rename would transpose '" + name + "', which is " + at::str(tensor.sizes()) +
                    " and does not have two dimensions");
      }
      if (more.transpose) tensor = tensor.t();
      if (more.to) name = compiled.replaced(name, *more.to);
    }
  }
  if (left_out) return std::nullopt;
  return std::pair(std::move(name), std::move(tensor));
}

/// The tensors as `rename` makes them.
NamedTensors renamed(const NamedTensors& tensors, const WeightsSection& weights) {
  NamedTensors result;
  std::map<std::string, std::string> old_names;
  std::vector<Regex> patterns;
  for (const auto& [pattern, unused] : weights.rename.entries) patterns.push_back(regex_of(pattern));
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

using WrittenWeights = std::variant<std::string, WeightsSection>;

const std::string& path_of(const WrittenWeights& weights) {
  if (const auto* path = std::get_if<std::string>(&weights)) return *path;
  return std::get<WeightsSection>(weights).path;
}

/// Throws DataError where no file of weights is at `named`, nor a folder with weights, nor can be had by that name.
void check_weights_path(const std::string& named) {
  namespace fs = std::filesystem;
  if (!network_is_allowed() && source_of_weights(named)) return;  // whether it can be had is known when it is fetched
  const std::string path = weights_path(named);
  std::error_code unreachable;  // as of a name that is too long
  const fs::file_status status = fs::status(path, unreachable);
  if (status.type() == fs::file_type::not_found) {
    throw DataError("there is no file or folder " + path +
                    (fs::path(path).is_relative() ? "; paths are relative to the current directory" : ""));
  }
  if (unreachable) throw DataError(path + ": " + unreachable.message());
  if (fs::is_directory(status)) check_pretrained_folder(path);
}

/// Where `section.weights` writes the path.
Place place_of_weights(const Value& section) {
  const Value& weights = *section.find("weights");
  const Value* path = weights.find("path");
  return (path ? *path : weights).place();
}

/// The folders that layers of `graph` name as `pretrained`, where they have no weights.
void find_missing_folders(const Graph& graph, std::vector<Problem>& problems) {
  std::map<const ModelRecord*, const GraphNode*> layers;  // the innermost layer that holds each
  const FlatGraph flat = flatten(graph);
  for (const FlatLayer& layer : flat.layers) {
    if (!layer.written->layer.state) continue;
    for (const auto& module : layer.written->layer.state->modules()) {
      if (const auto* record = dynamic_cast<const ModelRecord*>(module.get())) layers[record] = layer.written;
    }
  }
  for (const auto& [record, layer] : layers) {
    if (record->pretrained.empty()) continue;
    try {
      const bool is_of_hub = published_name(record->pretrained) != record->pretrained;
      if (network_is_allowed() || !is_of_hub) check_pretrained_folder(record->pretrained);
    } catch (const DataError& error) {
      problems.push_back({layer->place, layer->path, error.what()});
    }
  }
}

}  // namespace

std::vector<Problem> missing_weights(const Recipe& recipe, const Value& value, const Model* model) {
  std::vector<Problem> problems;
  const auto check = [&](const std::optional<WrittenWeights>& weights, const Value* section, const std::string& path) {
    if (!weights) return;
    try {
      check_weights_path(path_of(*weights));
    } catch (const DataError& error) {
      const bool is_path = std::holds_alternative<std::string>(*weights);
      problems.push_back({place_of_weights(*section), path + ".weights" + (is_path ? "" : ".path"), error.what()});
    }
  };
  check(recipe.model.weights, value.find("model"), "model");
  for (const auto& [name, role] : recipe.models.entries) {
    check(role.weights, value.find("models")->find(name), "models." + name);
  }
  if (!model) return problems;
  find_missing_folders(model->graph(), problems);
  if (!model->roles()) return problems;
  for (const Model* role : model->roles()->models()) find_missing_folders(role->graph(), problems);
  return problems;
}

std::vector<std::string> load_initial_weights(const Recipe& recipe, Model& model, bool has_weights) {
  std::vector<std::string> passed_over = load_pretrained(model);
  if (!recipe.model.weights || !has_weights) {
    if (model.adapters()) model.adapters()->begin();
    return passed_over;
  }
  WeightsSection weights;
  if (const auto* path = std::get_if<std::string>(&*recipe.model.weights)) {
    weights.path = *path;
  } else {
    weights = std::get<WeightsSection>(*recipe.model.weights);
  }
  try {
    check_weights_path(weights.path);  // it was there when the recipe was checked
    weights.path = weights_path(weights.path);
  } catch (const DataError& error) {
    throw Error(std::string("model.weights: ") + error.what());
  }
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
