#include "runner/generate/generation_config.h"

#include <cmath>
#include <filesystem>

#include "registry/error.h"
#include "registry/files/settings_file.h"

namespace trainrun {
namespace {

namespace fs = std::filesystem;

/// One of the two files, as transformers writes them.
class ConfigFile {
 public:
  explicit ConfigFile(std::string path) : path_(std::move(path)), json_(read_settings(path_)) {}

  void read(const char* key, bool& value) const {
    if (const auto* own = find(key)) value = own->is_boolean() ? own->get<bool>() : fail(key, "true or false");
  }
  void read(const char* key, int64_t& value, int64_t least) const {
    const auto* own = find(key);
    if (!own) return;
    if (!own->is_number_integer() || own->get<int64_t>() < least) {
      fail(key, "a whole number of at least " + std::to_string(least));
    }
    value = own->get<int64_t>();
  }
  void read(const char* key, double& value, double most) const {
    const auto* own = find(key);
    if (!own) return;
    const bool fits = own->is_number() && own->get<double>() > 0 && own->get<double>() <= most;
    if (!fits) fail(key, "a number greater than 0" + (std::isfinite(most) ? " and at most 1" : std::string()));
    value = own->get<double>();
  }
  /// A token, or a list of them.
  void read(const char* key, std::vector<int64_t>& tokens) const {
    const auto* own = find(key);
    if (!own) return;
    const nlohmann::json list = own->is_array() ? *own : nlohmann::json::array({*own});
    tokens.clear();
    for (const auto& token : list) {
      if (!token.is_number_integer()) fail(key, "a token, or a list of them");
      tokens.push_back(token.get<int64_t>());
    }
  }
  /// What changes the text and is not done here must be as if it were not there.
  void refuse(const char* key, const nlohmann::json& harmless) const {
    const auto* own = find(key);
    if (own && *own != harmless) {
      throw DataError(path_ + ": " + key + ": " + shown_json(*own) + " is not supported; remove it from the file");
    }
  }

 private:
  const nlohmann::json* find(const char* key) const {
    const auto found = json_.find(key);
    return found == json_.end() || found->is_null() ? nullptr : &*found;
  }
  [[noreturn]] bool fail(const std::string& key, const std::string& expected) const {
    throw DataError(path_ + ": " + key + ": expected " + expected + ", found " + shown_json(json_.at(key)));
  }

  std::string path_;
  nlohmann::json json_;
};

}  // namespace

GenerationOptions with_generation_config(GenerationOptions options, const std::string& folder) {
  const fs::path generation = fs::path(folder) / "generation_config.json";
  const fs::path model = fs::path(folder) / "config.json";
  if (folder.empty()) return options;
  if (!fs::exists(generation)) {
    if (fs::exists(model)) ConfigFile(model.string()).read("eos_token_id", options.end_tokens);
    return options;
  }
  const ConfigFile file(generation.string());
  file.read("do_sample", options.do_sample);
  file.read("max_new_tokens", options.max_new_tokens, 1);
  file.read("temperature", options.temperature, HUGE_VAL);
  file.read("top_k", options.top_k, 0);
  file.read("top_p", options.top_p, 1.0);
  file.read("repetition_penalty", options.repetition_penalty, HUGE_VAL);
  file.read("eos_token_id", options.end_tokens);
  file.refuse("num_beams", 1);
  file.refuse("no_repeat_ngram_size", 0);
  if (options.do_sample) {
    for (const char* key : {"typical_p", "min_p", "epsilon_cutoff", "eta_cutoff"}) {
      file.refuse(key, key == std::string("typical_p") ? 1.0 : 0.0);
    }
  }
  return options;
}

}  // namespace trainrun
