#include "registry/formats/web/named_sources.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <filesystem>
#include <set>
#include <vector>

#include "registry/formats/files/settings_file.h"
#include "registry/formats/web/hub_cache.h"
#include "registry/formats/web/hub_client.h"
#include "registry/formats/web/near_paths.h"
#include "registry/formats/web/network.h"
#include "registry/formats/web/require_network.h"
#include "registry/formats/web/torchvision_weights.h"
#include "registry/language/error.h"

namespace trainrun {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

/// The files that tokenizers and chat templates are in, as formats/text reads them and transformers looks for them.
constexpr std::array kTokenizerFiles = {"tokenizer.json",
                                        "vocab.txt",
                                        "vocab.json",
                                        "tokenizer.model",
                                        "spiece.model",
                                        "merges.txt",
                                        "tokenizer_config.json",
                                        "special_tokens_map.json",
                                        "added_tokens.json",
                                        "chat_template.jinja"};
/// What else of a model is small and read by somebody.
constexpr std::array kSettingsFiles = {"config.json", "generation_config.json", "modules.json",
                                       "config_sentence_transformers.json", "sentence_bert_config.json"};
constexpr std::array kWeightsFiles = {"model.safetensors", "pytorch_model.bin"};

bool is_there(const std::string& path) {
  std::error_code unreachable;  // as of a name that is too long
  return !path.empty() && fs::exists(path, unreachable);
}

bool is_there(const fs::path& folder, const std::string& file) { return is_there((folder / file).string()); }

/// The shards that an index of weights names.
std::set<std::string> shards_in(const fs::path& index) {
  const json content = read_settings(index.string());
  const json map = content.value("weight_map", json::object());
  std::set<std::string> names;
  if (!map.is_object()) return names;
  for (const auto& [tensor, file] : map.items()) {
    const std::string name = file.is_string() ? file.get<std::string>() : "";
    if (name.empty() || name.find('/') != std::string::npos || name.starts_with('.')) {
      throw DataError(index.string() + ": weight_map: '" + tensor + "' is not in a file beside it");
    }
    names.insert(name);
  }
  return names;
}

bool has_weights(const fs::path& folder) {
  return std::ranges::any_of(kWeightsFiles, [&](const std::string& name) {
    if (is_there(folder, name)) return true;
    if (!is_there(folder, name + ".index.json")) return false;
    const std::set<std::string> shards = shards_in(folder / (name + ".index.json"));
    return std::ranges::all_of(shards, [&](const std::string& shard) { return is_there(folder, shard); });
  });
}

bool has_tokenizer(const fs::path& folder) {
  constexpr std::array kAlone = {"tokenizer.json", "vocab.txt", "tokenizer.model", "spiece.model"};
  return std::ranges::any_of(kAlone, [&](const char* name) { return is_there(folder, name); }) ||
         (is_there(folder, "vocab.json") && is_there(folder, "merges.txt"));
}

bool has_part(const fs::path& folder, PublishedPart part) {
  return part == PublishedPart::kTokenizer ? has_tokenizer(folder)
                                           : is_there(folder, "config.json") && has_weights(folder);
}

/// The snapshot of the name in the cache, whether or not it has all that is needed; "" for none.
std::string cached_snapshot(const HubName& name) {
  if (hub_cache_folder().empty()) return "";
  const HubCache cache(name);
  const auto commit = cache.commit();
  return commit && is_there(cache.snapshot(*commit)) ? cache.snapshot(*commit) : "";
}

/// The name, unless something has this path.
std::optional<HubName> name_unless_path(const std::string& named) {
  return is_there(named) ? std::nullopt : hub_name_of(named);
}

void fetch_weights(const HubName& name, const HubCache& cache, const HubListing& listing) {
  for (const std::string file : kWeightsFiles) {
    if (listing.has(file)) return fetch_hub_file(name, cache, listing, file);
    const std::string index = file + ".index.json";
    if (!listing.has(index)) continue;
    fetch_hub_file(name, cache, listing, index);
    for (const std::string& shard : shards_in(fs::path(cache.snapshot(listing.commit)) / index)) {
      if (!listing.has(shard)) throw DataError(name.text() + ": " + index + " names " + shard + ", which is not there");
      fetch_hub_file(name, cache, listing, shard);
    }
    return;
  }
  throw DataError(name.text() + ": the model at " + hub_page(name) +
                  " has no weights that can be read: neither model.safetensors nor pytorch_model.bin");
}

std::string fetch_model(const HubName& name, PublishedPart part) {
  HubCache cache(name);
  HubName wanted = name;
  if (const auto commit = cache.commit()) wanted.revision = *commit;  // what is missing of it, not what is newer
  const HubListing listing = list_hub_files(wanted);
  const auto fetch = [&](const std::string& file) {
    listing.has(file) ? fetch_hub_file(name, cache, listing, file) : cache.note_missing(listing.commit, file);
  };
  if (part == PublishedPart::kWeights && !listing.has("config.json")) {
    throw DataError(name.text() + ": " + hub_page(name) + " has no config.json, so it is not a model of transformers");
  }
  for (const char* file : kSettingsFiles) fetch(file);
  for (const char* file : kTokenizerFiles) fetch(file);
  for (const std::string& file : listing.files) {
    if (file.ends_with("_Pooling/config.json")) fetch(file);  // of sentence-transformers
  }
  if (part == PublishedPart::kWeights) fetch_weights(name, cache, listing);
  cache.set_commit(listing.commit);
  const std::string folder = cache.snapshot(listing.commit);
  if (has_part(folder, part)) return folder;
  throw DataError(name.text() + ": " + hub_page(name) +
                  " has no tokenizer: none of tokenizer.json, vocab.txt, vocab.json and merges.txt, tokenizer.model");
}

}  // namespace

std::string not_in_cache_text(const HubName& name) {
  const std::string offline = offline_variable(name.kind);
  return name.text() + " is not in the cache (" + hub_cache_folder() + "); a run fetches it from " + hub_page(name) +
         (offline.empty() ? "" : ", but not while " + offline + " is set") + near_path_hint(name.text());
}

std::string model_folder(const std::string& named, PublishedPart part) {
  const auto name = name_unless_path(named);
  if (!name) return named;
  std::string cached = cached_snapshot(*name);
  if (!cached.empty() && has_part(cached, part)) return cached;
  const bool may_do = part == PublishedPart::kWeights && !network_is_allowed() && is_there(cached, "config.json");
  if (may_do) return cached;
  require_network(named, named, hub_page(*name), HubKind::kModel);
  return with_near_path(named, [&] { return fetch_model(*name, part); });
}

std::string weights_path(const std::string& named) {
  if (is_there(named)) return named;
  const auto file = torchvision_file(named);
  if (!file) return model_folder(named, PublishedPart::kWeights);
  if (is_there(file->path())) return file->path();
  require_network(named, named + " (" + file->path() + ")", file->url(), HubKind::kModel);
  fetch_torchvision(*file);
  return file->path();
}

std::optional<NamedSource> source_of_model(const std::string& named, PublishedPart part) {
  const auto name = name_unless_path(named);
  if (!name) return std::nullopt;
  std::string cached = cached_snapshot(*name);
  if (!cached.empty() && has_part(cached, part)) return NamedSource{named + " is in the cache: " + cached, true, true};
  return NamedSource{not_in_cache_text(*name), false, !cached.empty() && is_there(cached, "config.json")};
}

std::optional<NamedSource> source_of_weights(const std::string& named) {
  if (is_there(named)) return std::nullopt;
  const auto file = torchvision_file(named);
  if (!file) return source_of_model(named, PublishedPart::kWeights);
  if (is_there(file->path())) return NamedSource{named + " is in the cache: " + file->path(), true, false};
  return NamedSource{named + " is not in the cache (" + file->path() + "); a run fetches it from " + file->url(), false,
                     false};
}

std::string published_name(const std::string& folder) {
  const fs::path path(folder);
  const std::string commit = path.filename().string();
  const fs::path repository = path.parent_path().parent_path();
  constexpr std::string_view kModels = "models--";
  std::string id = repository.filename().string();
  if (!is_commit(commit) || path.parent_path().filename() != "snapshots" || !id.starts_with(kModels)) return folder;
  id.erase(0, kModels.size());
  if (const auto dashes = id.find("--"); dashes != std::string::npos) id.replace(dashes, 2, "/");
  return id + "@" + commit;
}

}  // namespace trainrun
