#include "runner/generate/generation_config.h"

#include <cmath>
#include <filesystem>

#include "registry/formats/files/settings_file.h"
#include "registry/language/error.h"
#include "registry/models/generation_keys.h"

namespace trainrun {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

/// The numbers that are allowed: above 0, or from 0.
struct Range {
  double most = HUGE_VAL;  // or 1
  bool has_zero = false;

  bool has(double number) const { return number <= most && (number > 0 || (has_zero && number == 0)); }
  std::string text() const {
    const std::string text = has_zero ? "a number of at least 0" : "a number greater than 0";
    return std::isfinite(most) ? text + " and at most 1" : text;
  }
};
constexpr Range kPositive = {};
constexpr Range kShare = {1};
constexpr Range kShareOrNone = {1, true};

/// One of the two files, as transformers writes them.
class ConfigFile {
 public:
  explicit ConfigFile(std::string path) : path_(std::move(path)), json_(read_settings(path_)) {}

  const json* find(const std::string& key) const {
    const auto found = json_.find(key);
    return found == json_.end() || found->is_null() ? nullptr : &*found;
  }
  const json& all() const { return json_; }
  const std::string& path() const { return path_; }

  void read(const char* key, bool& value) const {
    if (const auto* own = find(key)) value = own->is_boolean() ? own->get<bool>() : fail(key, "true or false");
  }
  template <class Integer>
  void read(const char* key, Integer& value, int64_t least) const {
    const auto* own = find(key);
    if (!own) return;
    if (!own->is_number_integer() || own->get<int64_t>() < least) {
      fail(key, "a whole number of at least " + std::to_string(least));
    }
    value = own->get<int64_t>();
  }
  template <class Number>
  void read(const char* key, Number& value, const Range& range) const {
    const auto* own = find(key);
    if (!own) return;
    if (!own->is_number() || !range.has(own->get<double>())) fail(key, range.text());
    value = own->get<double>();
  }
  /// A token, or a list of them.
  void read(const char* key, TokenList& tokens) const {
    if (const auto* own = find(key)) tokens = list_of(key, own->is_array() ? *own : json::array({*own}));
  }
  /// A text, or a list of them.
  void add(const char* key, std::vector<std::string>& texts) const {
    const auto* own = find(key);
    if (!own) return;
    for (const json& text : own->is_array() ? *own : json::array({*own})) {
      if (!text.is_string() || text.get<std::string>().empty()) fail(key, "a string, or a list of strings");
      texts.push_back(text.get<std::string>());
    }
  }
  TokenList list_of(const char* key, const json& tokens) const {
    if (!tokens.is_array()) fail(key, "lists of tokens");
    TokenList list;
    for (const json& token : tokens) {
      if (!token.is_number_integer()) fail(key, "a token, or a list of them");
      list.push_back(token.get<int64_t>());
    }
    return list;
  }
  [[noreturn]] bool fail(const std::string& key, const std::string& expected) const {
    throw DataError(path_ + ": " + key + ": expected " + expected + ", found " + shown_json(json_.at(key)));
  }

 private:
  std::string path_;
  json json_;
};

/// [[[1, 2], 0.5], …]
void read_biases(const ConfigFile& file, GenerationSettings& options) {
  constexpr const char* kKey = "sequence_bias";
  const auto* own = file.find(kKey);
  if (!own) return;
  for (const json& pair : *own) {
    if (!pair.is_array() || pair.size() != 2 || !pair[1].is_number()) {
      file.fail(kKey, "a list of [tokens, number]");
    }
    options.sequence_bias.emplace_back(file.list_of(kKey, pair[0]), pair[1].get<double>());
    if (options.sequence_bias.back().first.empty()) file.fail(kKey, "one token or more for each number");
  }
}

/// How long texts become. transformers takes a max_length of 20, its default once, for none.
void read_lengths(const ConfigFile& file, GenerationSettings& options) {
  constexpr int64_t kNoLength = 20;
  file.read("max_length", options.max_length, 1);
  file.read("max_new_tokens", options.max_new_tokens, 1);
  if (file.find("max_new_tokens") || options.max_length == kNoLength) options.max_length.reset();
  file.read("min_length", options.min_length, 0);
  file.read("min_new_tokens", options.min_new_tokens, 0);
  file.add("stop_strings", options.stop);
  file.read("num_return_sequences", options.num_samples, 1);
  if (options.num_samples > 1 && !options.do_sample) {
    file.fail("num_return_sequences", "1, for all would be the same where do_sample is not true");
  }
  const auto* decay = file.find("exponential_decay_length_penalty");
  if (!decay) return;
  if (!decay->is_array() || decay->size() != 2 || !(*decay)[0].is_number_integer() || !(*decay)[1].is_number()) {
    file.fail("exponential_decay_length_penalty", "[a number of tokens, a factor]");
  }
  options.exponential_decay_length_penalty = {(*decay)[0].get<int64_t>(), (*decay)[1].get<double>()};
}

void read_tokens(const ConfigFile& file, GenerationSettings& options) {
  file.read("eos_token_id", options.end_tokens);
  file.read("repetition_penalty", options.repetition_penalty, kPositive);
  file.read("no_repeat_ngram_size", options.no_repeat_ngram_size, 0);
  if (const auto* words = file.find("bad_words_ids")) {
    for (const json& word : *words) {
      options.bad_words_ids.push_back(file.list_of("bad_words_ids", word));
      if (options.bad_words_ids.back().empty()) file.fail("bad_words_ids", "one token or more in each list");
    }
  }
  read_biases(file, options);
  file.read("forced_bos_token_id", options.forced_bos_token_id, 0);
  file.read("forced_eos_token_id", options.forced_eos_token_id);
  file.read("suppress_tokens", options.suppress_tokens);
  file.read("begin_suppress_tokens", options.begin_suppress_tokens);
}

/// What counts where tokens are drawn, also by an option. Without do_sample nobody looks at a temperature of 0.
void read_drawing(const ConfigFile& file, GenerationSettings& options) {
  file.read("temperature", options.temperature, Range{HUGE_VAL, !options.do_sample});
  file.read("top_h", options.top_h, kShare);
  file.read("top_k", options.top_k, 0);
  file.read("top_p", options.top_p, kShare);
  file.read("min_p", options.min_p, kShareOrNone);
  file.read("typical_p", options.typical_p, kShare);
  file.read("epsilon_cutoff", options.epsilon_cutoff, kShareOrNone);
  file.read("eta_cutoff", options.eta_cutoff, kShareOrNone);
}

/// Keys that are not known are noted only of generation_config.json: of config.json the model does it.
void check_others(const ConfigFile& file, bool is_own, std::vector<std::string>& notes) {
  std::vector<std::string> unknown;
  for (const auto& [key, value] : file.all().items()) {
    if (value.is_null()) continue;
    const GenerationKey* known = find_generation_key(key);
    if (!known) unknown.push_back(key);
    const bool is_refused = known && known->use == GenerationKey::Use::kRefused && value != json::parse(known->neutral);
    const bool is_quantized = key == "cache_implementation" && value == "quantized";
    if (!is_refused && !is_quantized) continue;
    throw DataError(file.path() + ": " + key + ": " + shown_json(value) + " is not supported" +
                    (is_refused ? ": " + std::string(known->why) : "") + "; remove it from the file");
  }
  if (is_own && !unknown.empty()) notes.push_back(file.path() + ": " + unknown_keys_text(unknown));
}

}  // namespace

GenerationSettings with_generation_config(GenerationSettings options, const std::string& folder,
                                          std::vector<std::string>& notes) {
  if (folder.empty()) return options;
  const fs::path generation = fs::path(folder) / "generation_config.json";
  const bool is_own = fs::exists(generation);
  const fs::path path = is_own ? generation : fs::path(folder) / "config.json";
  if (!fs::exists(path)) return options;
  const ConfigFile file(path.string());
  file.read("do_sample", options.do_sample);
  read_lengths(file, options);
  read_tokens(file, options);
  read_drawing(file, options);
  check_others(file, is_own, notes);
  return options;
}

}  // namespace trainrun
