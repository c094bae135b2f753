#include "registry/tensors/files/pretrained_folder.h"

#include <ATen/ops/equal.h>
#include <nlohmann/json.hpp>

#include <filesystem>
#include <map>
#include <optional>
#include <set>

#include "registry/formats/files/file_io.h"
#include "registry/language/error.h"
#include "registry/tensors/files/torch_file.h"

namespace trainrun {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr uint64_t kMostIndexBytes = 64 << 20;  // a model of a million tensors
constexpr size_t kMostShards = 10000;

/// The file that holds each tensor, by the index.
using ShardOfTensor = std::map<std::string, std::string>;

/// Shards lie beside the index: a name that leads elsewhere is refused.
bool is_plain_name(const std::string& name) {
  return !name.empty() && name != "." && name != ".." && name.find('/') == std::string::npos &&
         name.find('\\') == std::string::npos && name.find('\0') == std::string::npos;
}

ShardOfTensor read_index(const std::string& path) {
  const std::string text = read_file(path, kMostIndexBytes);
  json index;
  std::set<std::string> keys;  // of the weight map
  const auto check = [&](int depth, json::parse_event_t event, json& parsed) {
    constexpr int kDeepest = 8;
    constexpr int kOfWeightMap = 2;
    if (depth > kDeepest) throw DataError(path + ": is not an index of shards: it is nested too deeply");
    const bool is_key = event == json::parse_event_t::key && depth == kOfWeightMap;
    if (is_key && !keys.insert(parsed.get<std::string>()).second) {
      throw DataError(path + ": weight_map: '" + parsed.get<std::string>() + "' occurs twice");
    }
    return true;
  };
  try {
    index = json::parse(text, check);
  } catch (const json::exception& error) {
    throw DataError(path + ": is not JSON: " + error.what());
  }
  if (!index.is_object() || !index.contains("weight_map") || !index["weight_map"].is_object()) {
    throw DataError(path + ": expected a weight_map of tensors' names to files");
  }
  ShardOfTensor shards;
  for (const auto& [tensor, file] : index["weight_map"].items()) {
    if (!file.is_string() || !is_plain_name(file.get<std::string>())) {
      throw DataError(path + ": weight_map: '" + tensor +
                      "' must be in a file beside the index, but the index places it in " +
                      file.dump(-1, ' ', false, json::error_handler_t::replace));
    }
    shards[tensor] = file.get<std::string>();
  }
  if (shards.empty()) throw DataError(path + ": weight_map names no tensor");
  return shards;
}

NamedTensors read_shards(const fs::path& folder, const std::string& index_path) {
  const ShardOfTensor shard_of = read_index(index_path);
  std::set<std::string> files;
  for (const auto& [tensor, file] : shard_of) files.insert(file);
  if (files.size() > kMostShards) throw DataError(index_path + ": names " + std::to_string(files.size()) + " shards");
  for (const std::string& file : files) {
    std::error_code unreachable;  // as of a name that is too long
    if (fs::exists(folder / file, unreachable)) continue;
    throw DataError(index_path + ": names the shard " + file + ", which is not in " + folder.string());
  }
  NamedTensors tensors;
  std::map<std::string, std::string> found;  // where each was
  for (const std::string& file : files) {
    for (auto& [name, tensor] : load_weights((folder / file).string())) {
      const auto [it, is_new] = found.emplace(name, file);
      if (!is_new) throw DataError(index_path + ": '" + name + "' is in both " + it->second + " and " + file);
      tensors.emplace_back(name, tensor);
    }
  }
  for (const auto& [name, file] : shard_of) {
    const auto it = found.find(name);
    if (it == found.end()) throw DataError(index_path + ": '" + name + "' is not in " + file + ", as it says");
    if (it->second != file) {
      throw DataError(index_path + ": '" + name + "' is in " + it->second + ", not in " + file + " as it says");
    }
  }
  return tensors;
}

/// Where a folder's weights are: in one file, or in shards that the file, an index, names.
struct WeightsFile {
  std::string path;
  bool is_index = false;
};

WeightsFile find_weights(const std::string& folder) {
  const fs::path path(folder);
  if (!fs::is_directory(path)) throw DataError("there is no folder " + folder);
  for (const char* stem : {"model.safetensors", "pytorch_model.bin"}) {
    const fs::path file = path / stem;
    const fs::path index = path / (std::string(stem) + ".index.json");
    if (fs::exists(file)) return {file.string(), /*is_index=*/false};
    if (fs::exists(index)) return {index.string(), /*is_index=*/true};
  }
  throw DataError(folder +
                  ": has no weights: none of model.safetensors, model.safetensors.index.json, pytorch_model.bin and "
                  "pytorch_model.bin.index.json is there");
}

/// The first of `names` that the file at `path` has or, where that is "", one of the shards.
std::optional<at::Tensor> one_tensor(const fs::path& folder, std::string path, const ShardOfTensor& shards,
                                     const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    const auto shard = shards.find(name);
    if (shard != shards.end()) path = (folder / shard->second).string();
    if (path.empty()) continue;
    if (!path.ends_with(".safetensors")) {
      for (auto& [own, tensor] : load_weights(path)) {
        if (own == name) return tensor;
      }
      continue;
    }
    SafetensorsFile file(path);
    for (const SafetensorsFile::Entry& entry : file.entries()) {
      if (entry.name == name) return file.read(entry);
    }
  }
  return std::nullopt;
}

}  // namespace

NamedTensors read_pretrained_folder(const std::string& folder) {
  const WeightsFile file = find_weights(folder);
  return file.is_index ? read_shards(folder, file.path) : load_weights(file.path);
}

bool differ_in_folder(const std::string& folder, const std::string& name, const std::string& other) {
  std::string path;
  try {
    const WeightsFile found = find_weights(folder);
    if (!found.is_index) path = found.path;
    const ShardOfTensor shards = found.is_index ? read_index(found.path) : ShardOfTensor();
    const std::optional<at::Tensor> first = one_tensor(folder, path, shards, {name, name.substr(name.find('.') + 1)});
    const std::optional<at::Tensor> second = first ? one_tensor(folder, path, shards, {other}) : std::nullopt;
    return second && (first->sizes() != second->sizes() || !at::equal(*first, second->to(first->scalar_type())));
  } catch (const DataError&) {
    return false;  // whoever loads the weights says what is wrong with them
  }
}

void check_pretrained_folder(const std::string& folder) { find_weights(folder); }

}  // namespace trainrun
