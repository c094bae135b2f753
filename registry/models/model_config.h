#pragma once

#include <nlohmann/json.hpp>
#include <torch/nn/module.h>

#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "registry/language/parameters.h"

namespace trainrun {

/// Where a registered model's sizes, and perhaps its weights, come from; a part of the parameters of each.
struct CheckpointOptions {
  std::optional<std::string> config;
  std::optional<std::string> pretrained;
  std::optional<int64_t> num_tokens;

  template <class Own>
  static void describe_checkpoint(Fields<Own>& f) {
    f.optional("config", &Own::config)
        .doc("a config.json of Hugging Face: gives the sizes that the recipe does not set");
    f.optional("pretrained", &Own::pretrained)
        .doc(
            "a folder in Hugging Face's layout (config.json; model.safetensors, shards with an index, or "
            "pytorch_model.bin), or the name of a model on Hugging Face's hub (org/name, org/name@revision), that "
            "gives "
            "sizes and weights; parameters without weights there keep their initial values");
    f.optional("num_tokens", &Own::num_tokens)
        .at_least(1)
        .doc(
            "how many tokens the tokenizer has: a smaller vocabulary of config or pretrained grows to it, and the new "
            "rows of the embedding and of the logits are the mean of the old ones; null: the vocabulary stays as it "
            "is, unless dataset.add_tokens says otherwise");
    f.rule({.when = {the("pretrained").is_given()},
            .all = {the("config").is_missing()},
            .at = "config",
            .message = "is in the folder that pretrained names already"});
  }
};

/// The settings of a model: the recipe's, else those of config.json, else the family's defaults. Every getter keeps what
/// it gave, so that the settings can be written again. What is wrong with the file is a DataError that names file and
/// key.
class ModelConfig {
 public:
  /// `model_type`: as config.json says it, "bert"; `architecture`: of this model, "BertForMaskedLM". Throws DataError
  /// where the file is missing, is not JSON, or belongs to another type of model.
  ModelConfig(const CheckpointOptions& options, const std::string& model_type, const std::string& architecture);

  int64_t integer(const std::string& key, const std::optional<int64_t>& own, int64_t fallback, int64_t least = 1);
  /// `vocab_size`: at least as large as CheckpointOptions::num_tokens; without a file, that. Throws DataError where the
  /// recipe's own word is less.
  int64_t vocab_size(const std::optional<int64_t>& own, int64_t fallback);
  /// How many rows the file's vocabulary has, where that of the model has more since tokens were added.
  const std::optional<int64_t>& grown_from() const { return grown_from_; }
  std::optional<int64_t> integer_or_null(const std::string& key, const std::optional<int64_t>& own,
                                         const std::optional<int64_t>& fallback, int64_t least = 1);
  double number(const std::string& key, const std::optional<double>& own, double fallback);
  std::optional<double> number_or_null(const std::string& key, const std::optional<double>& own);
  /// A number from 0 to 1.
  double probability(const std::string& key, const std::optional<double>& own, double fallback);
  std::string text(const std::string& key, const std::optional<std::string>& own, const std::string& fallback);
  bool flag(const std::string& key, const std::optional<bool>& own, bool fallback);
  /// How many classes there are: the recipe's word, else as many as id2label has, else 2.
  int64_t num_labels(const std::optional<int64_t>& own);

  /// Whether `head` is the same weight as `embedding`: by tie_word_embeddings, unless the folder has both and they
  /// differ; then both are kept, as in transformers, which is noted.
  bool ties(const std::optional<bool>& own, bool fallback, const std::string& head, const std::string& embedding);
  /// The file may call the second of each pair by the name of the first, as transformers' attribute_map has it.
  void rename(const std::vector<std::pair<std::string, std::string>>& aliases);
  /// These keys of the file mean nothing for this model.
  void know(const std::vector<std::string>& keys) { asked_.insert(keys.begin(), keys.end()); }

  /// Throws where the file has anything but null or `only` under `key`; `why` says what is not done here.
  void require(const std::string& key, const nlohmann::json& only, const std::string& why) const;
  /// What the file has under `key`; null where there is nothing.
  nlohmann::json in_file(const std::string& key) const;
  /// Throws DataError: "FOLDER/config.json: KEY: WHAT".
  [[noreturn]] void fail(const std::string& key, const std::string& what) const;
  /// Notes a setting that the written file has besides.
  void set(const std::string& key, nlohmann::json value) { used_[key] = std::move(value); }

  /// The file's settings, and over them those that the model has; with them transformers builds the same model.
  nlohmann::json written() const;
  /// What the user should know: keys of the file that nobody has asked for and that are not known to mean nothing.
  std::vector<std::string> notes() const;
  /// The folder that `pretrained` names, by its path or its name; "" without one.
  const std::string& folder() const { return folder_; }

 private:
  template <class T>
  T setting(const std::string& key, const std::optional<T>& own, const T& fallback);

  void refuse_what_changes_numbers() const;

  std::optional<int64_t> num_tokens_;
  std::optional<int64_t> grown_from_;
  std::string path_;  // "" without a file
  std::string folder_;
  nlohmann::json file_ = nlohmann::json::object();
  nlohmann::json used_ = nlohmann::json::object();
  mutable std::set<std::string> asked_;  // keys of the file
  std::vector<std::string> notes_;
};

/// What a registered language model keeps about itself, as a child of its module, which has no tensors: the settings that
/// config.json would have, and where its weights come from.
struct ModelRecord : torch::nn::Module {
  static constexpr const char* kName = "(config)";
  explicit ModelRecord(const ModelConfig& settings)
      : config(settings.written()),
        pretrained(settings.folder()),
        notes(settings.notes()),
        grown_from(settings.grown_from()) {}

  nlohmann::json config;
  std::string pretrained;  // "" for none
  std::vector<std::string> notes;
  std::optional<int64_t> grown_from;  // ModelConfig::grown_from
};

}  // namespace trainrun
