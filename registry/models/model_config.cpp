#include "registry/models/model_config.h"

#include <algorithm>
#include <filesystem>
#include <limits>

#include "registry/formats/files/settings_file.h"
#include "registry/formats/web/named_sources.h"
#include "registry/language/error.h"
#include "registry/models/config_keys.h"
#include "registry/models/generation_keys.h"
#include "registry/tensors/files/pretrained_folder.h"

namespace trainrun {
namespace {

using nlohmann::json;

constexpr int64_t kMostInteger = std::numeric_limits<int32_t>::max();

bool has_type(const json& value, const int64_t& /*like*/) { return value.is_number_integer(); }
bool has_type(const json& value, const double& /*like*/) { return value.is_number(); }
bool has_type(const json& value, const std::string& /*like*/) { return value.is_string(); }
bool has_type(const json& value, const bool& /*like*/) { return value.is_boolean(); }

const char* type_name(const int64_t& /*like*/) { return "an integer"; }
const char* type_name(const double& /*like*/) { return "a number"; }
const char* type_name(const std::string& /*like*/) { return "a string"; }
const char* type_name(const bool& /*like*/) { return "true or false"; }

}  // namespace

ModelConfig::ModelConfig(const CheckpointOptions& options, const std::string& model_type,
                         const std::string& architecture)
    : num_tokens_(options.num_tokens) {
  if (options.pretrained) {
    folder_ = model_folder(*options.pretrained, PublishedPart::kWeights);
    if (!std::filesystem::is_directory(folder_)) {
      throw DataError("pretrained: there is no folder " + folder_ +
                      "; name one with config.json and weights, or a model of Hugging Face's hub, as org/name");
    }
    path_ = (std::filesystem::path(folder_) / "config.json").string();
  } else if (options.config) {
    path_ = *options.config;
  }
  if (!path_.empty()) {
    file_ = read_settings(path_);
    const json type = in_file("model_type");
    if (!type.is_string()) fail("model_type", "expected \"" + model_type + "\", found " + shown_json(type));
    if (type != model_type) {
      fail("model_type", "it is of a model of type " + shown_json(type) + ", but " + architecture + " is of type \"" +
                             model_type + "\"");
    }
  }
  refuse_what_changes_numbers();
  used_["model_type"] = model_type;
  used_["architectures"] = json::array({architecture});
}

void ModelConfig::fail(const std::string& key, const std::string& what) const {
  throw DataError((path_.empty() ? "" : path_ + ": ") + key + ": " + what);
}

json ModelConfig::in_file(const std::string& key) const {
  asked_.insert(key);
  const auto it = file_.find(key);
  return it == file_.end() ? json() : *it;
}

template <class T>
T ModelConfig::setting(const std::string& key, const std::optional<T>& own, const T& fallback) {
  T result = fallback;
  const json value = in_file(key);
  if (own) {
    result = *own;
  } else if (!value.is_null()) {
    if (!has_type(value, result))
      fail(key, std::string("expected ") + type_name(result) + ", found " + shown_json(value));
    result = value.get<T>();
  }
  used_[key] = result;
  return result;
}

int64_t ModelConfig::integer(const std::string& key, const std::optional<int64_t>& own, int64_t fallback,
                             int64_t least) {
  const json value = in_file(key);
  const bool too_large = value.is_number_unsigned() && value.get<uint64_t>() > static_cast<uint64_t>(kMostInteger);
  if (!own && too_large) fail(key, "is " + shown_json(value) + ", which no model has");
  const int64_t number = setting(key, own, fallback);
  if (number < least || number > kMostInteger) {
    fail(key, "must be from " + std::to_string(least) + " to " + std::to_string(kMostInteger) + ", is " +
                  std::to_string(number));
  }
  return number;
}

int64_t ModelConfig::vocab_size(const std::optional<int64_t>& own, int64_t fallback) {
  const char* key = "vocab_size";
  const bool is_said = own || !in_file(key).is_null();
  const int64_t in_folder = own || !is_said ? 0 : integer(key, own, fallback);
  if (own && num_tokens_ && *own < *num_tokens_) {
    throw DataError("vocab_size: is " + std::to_string(*own) + ", but the tokenizer has " +
                    std::to_string(*num_tokens_) + " tokens; write vocab_size: " + std::to_string(*num_tokens_) +
                    ", or leave it out");
  }
  if (!num_tokens_) return integer(key, own, fallback);
  const int64_t size = integer(key, own.value_or(std::max(in_folder, *num_tokens_)), fallback);
  const json before = in_file(key);
  if (before.is_number_integer() && before.get<int64_t>() < size) grown_from_ = before.get<int64_t>();
  return size;
}

std::optional<int64_t> ModelConfig::integer_or_null(const std::string& key, const std::optional<int64_t>& own,
                                                    const std::optional<int64_t>& fallback, int64_t least) {
  const bool says_null = file_.contains(key) && in_file(key).is_null();
  if (!own && (says_null || (!file_.contains(key) && !fallback))) {
    used_[key] = nullptr;
    return std::nullopt;
  }
  return integer(key, own, fallback.value_or(least), least);
}

double ModelConfig::number(const std::string& key, const std::optional<double>& own, double fallback) {
  const double number = setting(key, own, fallback);
  if (!(number >= 0) || number > 1e30) fail(key, "must be a number from 0, is " + shown_json(used_[key]));
  return number;
}

std::optional<double> ModelConfig::number_or_null(const std::string& key, const std::optional<double>& own) {
  if (!own && in_file(key).is_null()) {
    used_[key] = nullptr;
    return std::nullopt;
  }
  return number(key, own, 0);
}

double ModelConfig::probability(const std::string& key, const std::optional<double>& own, double fallback) {
  const double p = number(key, own, fallback);
  if (p > 1) fail(key, "must be a probability from 0 to 1, is " + shown_json(used_[key]));
  return p;
}

std::string ModelConfig::text(const std::string& key, const std::optional<std::string>& own,
                              const std::string& fallback) {
  return setting(key, own, fallback);
}

bool ModelConfig::flag(const std::string& key, const std::optional<bool>& own, bool fallback) {
  return setting(key, own, fallback);
}

int64_t ModelConfig::num_labels(const std::optional<int64_t>& own) {
  const json names = in_file("id2label");
  if (!names.is_null() && !names.is_object()) fail("id2label", "expected a mapping, found " + shown_json(names));
  int64_t number = 2;
  if (own) {
    number = *own;
  } else if (names.is_object()) {
    number = static_cast<int64_t>(names.size());
  } else if (!in_file("num_labels").is_null()) {
    number = integer("num_labels", std::nullopt, number);
    used_.erase("num_labels");  // transformers counts id2label
  }
  if (number < 1) fail("id2label", "names no class");
  if (names.is_object() && static_cast<int64_t>(names.size()) == number) return number;
  json labels = json::object();
  json ids = json::object();
  for (int64_t i = 0; i < number; ++i) {
    const std::string label = "LABEL_" + std::to_string(i);
    labels[std::to_string(i)] = label;
    ids[label] = i;
  }
  used_["id2label"] = labels;
  used_["label2id"] = ids;
  return number;
}

bool ModelConfig::ties(const std::optional<bool>& own, bool fallback, const std::string& head,
                       const std::string& embedding) {
  if (!flag("tie_word_embeddings", own, fallback)) return false;
  if (folder_.empty() || !differ_in_folder(folder_, embedding, head)) return true;
  notes_.push_back(folder_ + ": tie_word_embeddings is true, but " + head + " and " + embedding +
                   " differ; both are kept, each with its own values, as in transformers");
  return false;
}

void ModelConfig::rename(const std::vector<std::pair<std::string, std::string>>& aliases) {
  for (const auto& [alias, key] : aliases) {
    const auto found = file_.find(alias);
    if (found == file_.end()) continue;
    if (file_.contains(key) && file_[key] != *found) {
      fail(alias, "is " + shown_json(*found) + ", but " + key + ", which is the same, is " + shown_json(file_[key]));
    }
    file_[key] = *found;
    file_.erase(alias);
  }
}

void ModelConfig::refuse_what_changes_numbers() const {
  for (const char* key : {"quantization_config", "compression_config"}) {
    const json value = in_file(key);
    if (value.is_null()) continue;
    const json method = value.is_object() ? value.value("quant_method", json()) : json();
    fail(key, "the weights are quantized" + (method.is_string() ? " (" + method.get<std::string>() + ")" : "") +
                  ", which cannot be read; name a folder with the weights in float16, bfloat16 or float32");
  }
  require("is_encoder_decoder", false, "only models of one stack are available");
  require("pruned_heads", json::object(), "heads that were taken out of the attention are not available");
  require("per_layer_config", json::object(), "layers of different sizes are not available");
}

std::vector<std::string> ModelConfig::notes() const {
  std::set<std::string> unknown;
  for (const auto& [key, value] : file_.items()) {
    const bool is_known = asked_.contains(key) || means_nothing_to_models(key) || find_generation_key(key);
    if (!is_known && !value.is_null()) unknown.insert(key);
  }
  std::vector<std::string> all = notes_;
  if (!unknown.empty()) all.push_back(path_ + ": " + unknown_keys_text({unknown.begin(), unknown.end()}));
  return all;
}

void ModelConfig::require(const std::string& key, const json& only, const std::string& why) const {
  const json value = in_file(key);
  if (value.is_null() || value == only) return;
  fail(key, "is " + shown_json(value) + "; " + why);
}

json ModelConfig::written() const {
  json all = file_;
  all.update(used_);
  all["dtype"] = "float32";
  all.erase("torch_dtype");
  // To transformers 5 a null under the old name takes rope_parameters back.
  if (all.value("rope_scaling", json()).is_null()) all.erase("rope_scaling");
  all.erase("num_labels");
  return all;
}

}  // namespace trainrun
