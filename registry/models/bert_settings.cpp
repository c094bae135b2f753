#include "registry/models/bert_settings.h"

namespace trainrun {

BertSettings::BertSettings(const BertOptions& own, const BertFamily& family, ModelConfig& config) {
  vocab_size = config.vocab_size(own.vocab_size, family.vocab_size);
  hidden_size = config.integer("hidden_size", own.hidden_size, 768);
  num_hidden_layers = layer_count(config, "num_hidden_layers", own.num_hidden_layers, 12);
  num_attention_heads = config.integer("num_attention_heads", own.num_attention_heads, 12);
  intermediate_size = config.integer("intermediate_size", own.intermediate_size, 3072);
  hidden_act = config.text("hidden_act", own.hidden_act, "gelu");
  hidden_dropout_prob = config.probability("hidden_dropout_prob", own.hidden_dropout_prob, 0.1);
  attention_probs_dropout_prob =
      config.probability("attention_probs_dropout_prob", own.attention_probs_dropout_prob, 0.1);
  classifier_dropout =
      config.number_or_null("classifier_dropout", own.classifier_dropout).value_or(hidden_dropout_prob);
  max_position_embeddings = config.integer("max_position_embeddings", own.max_position_embeddings, 512);
  type_vocab_size = config.integer("type_vocab_size", own.type_vocab_size, 2);
  initializer_range = config.number("initializer_range", own.initializer_range, 0.02);
  layer_norm_eps = config.number("layer_norm_eps", own.layer_norm_eps, 1e-12);
  pad_token_id = config.integer("pad_token_id", own.pad_token_id, family.pad_token_id, 0);
  if (pad_token_id >= vocab_size) config.fail("pad_token_id", "is not in the vocabulary");
  config.require("position_embedding_type", "absolute", "relative positions are not available");
  config.require("is_decoder", false, "only encoders are available");
  config.require("add_cross_attention", false, "cross-attention is not available");
  require_heads(hidden_size, num_attention_heads);
}

}  // namespace trainrun
