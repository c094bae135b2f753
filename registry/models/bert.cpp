#include "registry/graph/graph.h"
#include "registry/models/bert_settings.h"

// BERT and RoBERTa. Sources: Devlin et al. 2019, "BERT: Pre-training of Deep Bidirectional Transformers for Language
// Understanding"; Liu et al. 2019, "RoBERTa: A Robustly Optimized BERT Pretraining Approach".

namespace trainrun {
namespace {

using nlohmann::json;

/// What the head over the vocabulary has in common with the rest of the model.
struct TiedHead {
  bool weight = true;  // that of the embedding of words
  bool bias = true;    // the head's own, outside of the decoder
};

/// The lists of layers of one model.
class BertLayers {
 public:
  BertLayers(const BertSettings& settings, const BertFamily& family, const ModelConfig& config,
             const LayerInputs& inputs)
      : s_(settings), family_(family), config_(config), inputs_(inputs) {}

  /// The encoder, and what pools it.
  Listing model(bool pools) const {
    Listing model;
    const std::vector<std::string> roles = {kInputIds, kTokenTypeIds, kPositionIds};
    model.add(embeddings(), "embeddings", with_roles(kInputIds, inputs_, roles));
    model.add(encoder(), "encoder", with_roles("embeddings", inputs_, {kAttentionMask}));
    if (pools) model.add(pooler(), "pooler");
    return model;
  }

  /// Its last hidden states, transformed for the vocabulary: of BERT `cls.predictions`.
  Listing vocabulary_head(const TiedHead& tied, const std::string& embeddings,
                          const std::string& transform_norm) const {
    Listing head;
    const auto add_transform = [&](Listing& to) {
      to.add("Linear", {{"name", "dense"}, {"out_features", s_.hidden_size}});
      const bool is_bert = transform_norm == "LayerNorm";
      add_activation(to, "activation", is_bert ? s_.hidden_act : "gelu", config_, "hidden_act");
      to.add("LayerNorm", {{"name", transform_norm}, {"eps", s_.layer_norm_eps}});
    };
    if (transform_norm == "LayerNorm") {
      Listing transform;
      add_transform(transform);
      head.add(std::move(transform), "transform");
    } else {
      add_transform(head);
    }
    json decoder = {{"name", "decoder"}, {"out_features", s_.vocab_size}, {"bias", !tied.bias}};
    if (tied.weight) decoder["share"] = embeddings;
    head.add("Linear", decoder);
    if (!tied.bias) return head;
    head.add("Parameter", {{"name", "bias"}, {"shape", std::vector<int64_t>{s_.vocab_size}}, {"expand", false}});
    head.add("Add", {{"name", "scores"}, {"inputs", {"decoder", "bias"}}});
    return head;
  }

 private:
  json norm() const { return {{"name", "LayerNorm"}, {"eps", s_.layer_norm_eps}}; }
  json dropout() const { return {{"name", "dropout"}, {"p", s_.hidden_dropout_prob}}; }

  Listing embeddings() const {
    Listing layers;
    layers.add("Embedding", {{"name", "word_embeddings"},
                             {"inputs", kInputIds},
                             {"num_embeddings", s_.vocab_size},
                             {"embedding_dim", s_.hidden_size},
                             {"padding_idx", s_.pad_token_id}});
    json positions = {{"max_positions", s_.max_position_embeddings}};
    if (family_.counts_from_padding) positions["padding_idx"] = s_.pad_token_id;
    add_positions(layers, inputs_, positions);
    json table = {{"name", "position_embeddings"},
                  {"inputs", kPositionIds},
                  {"num_embeddings", s_.max_position_embeddings},
                  {"embedding_dim", s_.hidden_size}};
    if (family_.counts_from_padding) table["padding_idx"] = s_.pad_token_id;
    layers.add("Embedding", table);
    if (!has_role(inputs_, kTokenTypeIds)) {
      layers.add("Mul", {{"name", kTokenTypeIds}, {"inputs", kInputIds}, {"other", 0}});
    }
    layers.add("Embedding", {{"name", "token_type_embeddings"},
                             {"inputs", kTokenTypeIds},
                             {"num_embeddings", s_.type_vocab_size},
                             {"embedding_dim", s_.hidden_size}});
    const Names summands = {"word_embeddings", "token_type_embeddings", "position_embeddings"};
    layers.add("Add", {{"name", "sum"}, {"inputs", listed(summands)}});
    layers.add("LayerNorm", norm()).add("Dropout", dropout());
    return layers;
  }

  Listing encoder() const {
    Listing blocks;
    for (int64_t i = 0; i < s_.num_hidden_layers; ++i) {
      const std::string before = i == 0 ? "x" : std::to_string(i - 1);
      blocks.add(block(), "", with_roles(before, inputs_, {kAttentionMask}));
    }
    Listing encoder;
    encoder.add(std::move(blocks), "layer", with_roles("x", inputs_, {kAttentionMask}));
    return encoder;
  }

  Listing block() const {
    Listing intermediate;
    intermediate.add("Linear", {{"name", "dense"}, {"out_features", s_.intermediate_size}});
    add_activation(intermediate, "activation", s_.hidden_act, config_, "hidden_act");
    Listing block;
    block.add(attention(), "attention", with_roles("x", inputs_, {kAttentionMask}));
    block.add(std::move(intermediate), "intermediate");
    block.add(projected("attention"), "output", {"intermediate", "attention"});
    return block;
  }

  Listing attention() const {
    Listing self;
    for (const char* name : {"query", "key", "value"}) {
      self.add("Linear", {{"name", name}, {"inputs", "x"}, {"out_features", s_.hidden_size}});
    }
    Names attended = {"query", "key", "value"};
    if (has_role(inputs_, kAttentionMask)) attended.push_back(kAttentionMask);
    self.add("ScaledDotProductAttention", {{"name", "attended"},
                                           {"inputs", listed(attended)},
                                           {"num_heads", s_.num_attention_heads},
                                           {"dropout", s_.attention_probs_dropout_prob}});
    Listing attention("hidden");
    attention.add(std::move(self), "self", with_roles("hidden", inputs_, {kAttentionMask}));
    attention.add(projected("hidden"), "output", {"self", "hidden"});
    return attention;
  }

  /// A Linear, added to `residual` and normalized: transformers' BertSelfOutput and BertOutput.
  Listing projected(const std::string& residual) const {
    Listing layers;
    layers.add("Linear", {{"name", "dense"}, {"out_features", s_.hidden_size}}).add("Dropout", dropout());
    layers.add("Add", {{"name", "sum"}, {"inputs", {"dropout", residual}}});
    layers.add("LayerNorm", norm());
    return layers;
  }

  Listing pooler() const {
    Listing layers;
    layers.add("Select", {{"name", "first"}, {"dim", 1}, {"index", 0}});
    layers.add("Linear", {{"name", "dense"}, {"out_features", s_.hidden_size}});
    layers.add("Tanh", {{"name", "activation"}});
    return layers;
  }

  const BertSettings& s_;
  const BertFamily& family_;
  const ModelConfig& config_;
  const LayerInputs& inputs_;
};

/// "BertForMaskedLM"
std::string architecture(const BertFamily& family, BertHead head) {
  const std::string name = &family == &kRoberta ? "Roberta" : "Bert";
  switch (head) {
    case BertHead::kNone:
      return name + "Model";
    case BertHead::kSequence:
      return name + "ForSequenceClassification";
    case BertHead::kToken:
      return name + "ForTokenClassification";
    default:
      return name + "ForMaskedLM";
  }
}

/// The layers after RoBERTa's encoder that classify sequences.
Listing roberta_classifier(const BertSettings& settings, int64_t num_labels) {
  Listing layers;
  layers.add("Select", {{"name", "first"}, {"dim", 1}, {"index", 0}});
  layers.add("Dropout", {{"name", "dropout"}, {"p", settings.classifier_dropout}});
  layers.add("Linear", {{"name", "dense"}, {"out_features", settings.hidden_size}});
  layers.add("Tanh", {{"name", "activation"}});
  layers.add("Dropout", {{"name", "dropout_out"}, {"p", settings.classifier_dropout}});
  layers.add("Linear", {{"name", "out_proj"}, {"out_features", num_labels}});
  return layers;
}

template <const BertFamily& kFamily, BertHead kHead>
struct BertOf : BertOptions {
  static constexpr bool kClassifies = kHead == BertHead::kSequence || kHead == BertHead::kToken;

  bool add_pooling_layer = true;

  static void describe(Fields<BertOf>& f) {
    describe_bert(f, kFamily, kHead);
    if constexpr (kHead == BertHead::kNone) {
      f.optional("add_pooling_layer", &BertOf::add_pooling_layer)
          .doc("false: without the pooled first state and the weights for it");
    }
  }

  Layer build(const LayerInputs& in) const {
    ModelConfig config(*this, kFamily.model_type, architecture(kFamily, kHead));
    const BertSettings settings(*this, kFamily, config);
    const LayerInputs inputs = by_role(in, fields);
    const BertLayers layers(settings, kFamily, config, inputs);
    if constexpr (kHead == BertHead::kNone) {
      auto graph = layers.model(add_pooling_layer).build(inputs);
      graph->set_outputs({*graph->slot("encoder")});
      if (add_pooling_layer) graph->set_outputs({*graph->slot("encoder"), *graph->slot("pooler")});
      draw_language_weights(*graph, settings.initializer_range);
      return language_model(std::move(graph), config);
    } else {
      const bool is_bert = &kFamily == &kBert;
      Listing model;
      const std::vector<std::string> roles = fields;
      model.add(layers.model(is_bert && kHead == BertHead::kSequence), kFamily.prefix,
                with_roles(kInputIds, inputs, roles));
      const int64_t num_labels = kClassifies ? config.num_labels(this->num_labels) : 0;
      TiedHead tied;
      if constexpr (kHead == BertHead::kMaskedLM) tied = tied_head(config);
      add_head(model, layers, settings, num_labels, tied);
      auto graph = model.build(inputs);
      draw_language_weights(*graph, settings.initializer_range);
      return language_model(std::move(graph), config);
    }
  }

 private:
  static std::string words() { return std::string(kFamily.prefix) + ".embeddings.word_embeddings"; }

  static TiedHead tied_head(ModelConfig& config) {
    const std::string head = &kFamily == &kBert ? "cls.predictions." : "lm_head.";
    return {config.ties(std::nullopt, true, head + "decoder.weight", words() + ".weight"),
            config.ties(std::nullopt, true, head + "decoder.bias", head + "bias")};
  }

  static void add_head(Listing& model, const BertLayers& layers, const BertSettings& settings, int64_t num_labels,
                       const TiedHead& tied) {
    const bool is_bert = &kFamily == &kBert;
    if (kHead == BertHead::kMaskedLM) {
      Listing head = layers.vocabulary_head(tied, words(), is_bert ? "LayerNorm" : "layer_norm");
      if (is_bert) {
        Listing cls;
        cls.add(std::move(head), "predictions");
        model.add(std::move(cls), "cls");
      } else {
        model.add(std::move(head), "lm_head");
      }
    } else if (kHead == BertHead::kSequence && !is_bert) {
      model.add(roberta_classifier(settings, num_labels), "classifier");
    } else {
      model.add("Dropout", {{"name", "dropout"}, {"p", settings.classifier_dropout}});
      model.add("Linear", {{"name", "classifier"}, {"out_features", num_labels}});
    }
  }
};

}  // namespace

void add_berts(LayerRegistry& layers) {
  const std::string to_classes = "token ids [N, T] to logits [N, num_labels]";
  const std::string to_tokens = "token ids [N, T] to logits [N, T, num_labels]";
  const std::string to_words = "token ids [N, T] to logits [N, T, vocab_size]";
  const std::string to_features =
      "token ids [N, T] to the last hidden states [N, T, hidden_size], and the pooled first one";
  layers.add<BertOf<kBert, BertHead::kNone>>("BertModel", "BERT, " + to_features);
  layers.add<BertOf<kBert, BertHead::kSequence>>("BertForSequenceClassification", "BERT, " + to_classes);
  layers.add<BertOf<kBert, BertHead::kToken>>("BertForTokenClassification", "BERT, " + to_tokens);
  layers.add<BertOf<kBert, BertHead::kMaskedLM>>("BertForMaskedLM", "BERT, " + to_words);
  layers.add<BertOf<kRoberta, BertHead::kNone>>("RobertaModel", "RoBERTa, " + to_features);
  layers.add<BertOf<kRoberta, BertHead::kSequence>>("RobertaForSequenceClassification", "RoBERTa, " + to_classes);
  layers.add<BertOf<kRoberta, BertHead::kToken>>("RobertaForTokenClassification", "RoBERTa, " + to_tokens);
  layers.add<BertOf<kRoberta, BertHead::kMaskedLM>>("RobertaForMaskedLM", "RoBERTa, " + to_words);
}

}  // namespace trainrun
