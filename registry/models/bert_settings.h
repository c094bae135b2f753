#pragma once

#include <string>

#include "registry/models/language_model.h"

namespace trainrun {

/// What follows the encoder.
enum class BertHead { kNone, kSequence, kToken, kMaskedLM };

struct BertFamily {
  const char* model_type;
  const char* prefix;  // of the encoder's state names
  int64_t vocab_size;
  int64_t pad_token_id;
  bool counts_from_padding;  // positions, as RoBERTa's
};
inline constexpr BertFamily kBert = {"bert", "bert", 30522, 0, false};
inline constexpr BertFamily kRoberta = {"roberta", "roberta", 50265, 1, true};

/// What a recipe may say of them; null: what config.json says, else the family's default.
struct BertOptions : CheckpointOptions {
  std::optional<int64_t> vocab_size;
  std::optional<int64_t> hidden_size;
  std::optional<int64_t> num_hidden_layers;
  std::optional<int64_t> num_attention_heads;
  std::optional<int64_t> intermediate_size;
  std::optional<std::string> hidden_act;
  std::optional<double> hidden_dropout_prob;
  std::optional<double> attention_probs_dropout_prob;
  std::optional<double> classifier_dropout;
  std::optional<int64_t> max_position_embeddings;
  std::optional<int64_t> type_vocab_size;
  std::optional<double> initializer_range;
  std::optional<double> layer_norm_eps;
  std::optional<int64_t> pad_token_id;
  std::optional<int64_t> num_labels;
  BatchFields fields = {kInputIds, kAttentionMask, kTokenTypeIds, kPositionIds};

  template <class Own>
  static void describe_bert(Fields<Own>& f, const BertFamily& family, BertHead head) {
    Own::describe_checkpoint(f);
    const auto count = [&](const char* name, std::optional<int64_t> BertOptions::* member, const std::string& doc,
                           int64_t fallback) {
      return f.optional(name, member).at_least(1).doc(doc + otherwise(std::to_string(fallback)));
    };
    const auto number = [&](const char* name, std::optional<double> BertOptions::* member, const std::string& doc,
                            const std::string& fallback) {
      return f.optional(name, member).at_least(0).doc(doc + otherwise(fallback));
    };
    if (head == BertHead::kSequence || head == BertHead::kToken) {
      count("num_labels", &Own::num_labels, "number of classes", 2);
      number("classifier_dropout", &Own::classifier_dropout, "dropout before the classifier", "hidden_dropout_prob")
          .at_most(1);
    }
    count("vocab_size", &Own::vocab_size, "number of tokens", family.vocab_size);
    count("hidden_size", &Own::hidden_size, "features of a token", 768);
    count("num_hidden_layers", &Own::num_hidden_layers, "layers of the encoder", 12).at_most(kMostLayers);
    count("num_attention_heads", &Own::num_attention_heads, "heads of the attention", 12);
    count("intermediate_size", &Own::intermediate_size, "features between a layer's two Linears", 3072);
    f.optional("hidden_act", &Own::hidden_act).doc("activation, by transformers' name" + otherwise("gelu"));
    number("hidden_dropout_prob", &Own::hidden_dropout_prob, "dropout, while training", "0.1").at_most(1);
    number("attention_probs_dropout_prob", &Own::attention_probs_dropout_prob,
           "dropout of the attention weights, while training", "0.1")
        .at_most(1);
    count("max_position_embeddings", &Own::max_position_embeddings, "number of positions", 512);
    count("type_vocab_size", &Own::type_vocab_size, "number of token types", 2);
    number("initializer_range", &Own::initializer_range, "standard deviation of the initial weights", "0.02");
    number("layer_norm_eps", &Own::layer_norm_eps, "added to the variance", "1e-12");
    count("pad_token_id", &Own::pad_token_id, "the padding token", family.pad_token_id).at_least(0);
    describe_fields(f);
  }
};

/// The settings of one model, as they are used.
struct BertSettings {
  int64_t vocab_size = 0;
  int64_t hidden_size = 0;
  int64_t num_hidden_layers = 0;
  int64_t num_attention_heads = 0;
  int64_t intermediate_size = 0;
  std::string hidden_act;
  double hidden_dropout_prob = 0;
  double attention_probs_dropout_prob = 0;
  double classifier_dropout = 0;
  int64_t max_position_embeddings = 0;
  int64_t type_vocab_size = 0;
  double initializer_range = 0;
  double layer_norm_eps = 0;
  int64_t pad_token_id = 0;

  BertSettings(const BertOptions& own, const BertFamily& family, ModelConfig& config);
};

}  // namespace trainrun
