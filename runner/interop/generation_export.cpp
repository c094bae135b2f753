#include "runner/interop/generation_export.h"

#include <algorithm>
#include <filesystem>

#include "registry/formats/files/settings_file.h"
#include "registry/models/generation_keys.h"
#include "runner/generate/chat_format.h"
#include "runner/generate/text_codec.h"

namespace trainrun {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

/// Those keys of a config.json that older models have in place of generation_config.json.
json generation_keys_in(const json& config) {
  json found = json::object();
  for (const auto& [key, value] : config.items()) {
    const GenerationKey* known = find_generation_key(key);
    const bool is_meant = known && (known->use != GenerationKey::Use::kMeansNone || key.ends_with("_token_id"));
    if (is_meant && !value.is_null()) found[key] = value;
  }
  return found;
}

void add_token(std::vector<int64_t>& tokens, std::optional<int64_t> token) {
  if (token && std::ranges::find(tokens, *token) == tokens.end()) tokens.push_back(*token);
}

json id_or_null(const Tokenizer* tokenizer, const char* role) {
  const auto id = tokenizer ? tokenizer->special_id(role) : std::nullopt;
  return id ? json(*id) : json();
}

/// The tokens that end a text: those that the files name, what the data put behind documents, the template's end of turn.
std::vector<int64_t> ends_of_texts(const Recipe& recipe, const json& config, const Tokenizer* tokenizer) {
  std::vector<int64_t> ends;
  const json named = config.value("eos_token_id", json());
  for (const json& one : named.is_array() ? named : json::array({named})) {
    if (one.is_number_integer()) add_token(ends, one.get<int64_t>());
  }
  if (!tokenizer) return ends;
  if (ends.empty()) add_token(ends, tokenizer->special_id("eos"));
  for (const std::string& end : ends_of_documents(recipe)) add_token(ends, tokenizer->id_of(end));
  for (const int64_t end : turn_ends_of(recipe)) add_token(ends, end);
  return ends;
}

}  // namespace

json generation_config_of(TrainedRun& run, const ModelRecord& record, const Tokenizer* tokenizer) {
  const fs::path own = fs::path(record.pretrained) / "generation_config.json";
  const bool has_own = !record.pretrained.empty() && fs::exists(own);
  json config = has_own ? read_settings(own.string()) : generation_keys_in(record.config);
  const std::vector<int64_t> ends = ends_of_texts(run.recipe(), config, tokenizer);
  config["eos_token_id"] = ends.empty() ? json() : ends.size() == 1 ? json(ends[0]) : json(ends);
  for (const char* role : {"bos", "pad"}) {
    const std::string key = std::string(role) + "_token_id";
    if (!config.contains(key)) config[key] = id_or_null(tokenizer, role);
  }
  return config;
}

void set_special_tokens(json& config, const Tokenizer* tokenizer) {
  for (const char* role : {"bos", "eos"}) {
    const std::string key = std::string(role) + "_token_id";
    if (!config.contains(key)) config[key] = id_or_null(tokenizer, role);
  }
}

}  // namespace trainrun
