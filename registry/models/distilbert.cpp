#include "registry/graph/graph.h"
#include "registry/models/language_model.h"

// DistilBERT. Source: Sanh et al. 2019, "DistilBERT, a distilled version of BERT".

namespace trainrun {
namespace {

using nlohmann::json;

/// What a recipe may say; null: what config.json says, else DistilBERT's default.
struct DistilBertOptions : CheckpointOptions {
  std::optional<int64_t> vocab_size;
  std::optional<int64_t> dim;
  std::optional<int64_t> n_layers;
  std::optional<int64_t> n_heads;
  std::optional<int64_t> hidden_dim;
  std::optional<std::string> activation;
  std::optional<double> dropout;
  std::optional<double> attention_dropout;
  std::optional<double> seq_classif_dropout;
  std::optional<int64_t> max_position_embeddings;
  std::optional<double> initializer_range;
  std::optional<int64_t> num_labels;
  BatchFields fields = {kInputIds, kAttentionMask, kPositionIds};

  template <class Own>
  static void describe_distilbert(Fields<Own>& f) {
    Own::describe_checkpoint(f);
    f.optional("vocab_size", &Own::vocab_size).at_least(1).doc("number of tokens" + otherwise("30522"));
    f.optional("dim", &Own::dim).at_least(1).doc("features of a token" + otherwise("768"));
    f.optional("n_layers", &Own::n_layers)
        .at_least(1)
        .at_most(kMostLayers)
        .doc("layers of the encoder" + otherwise("6"));
    f.optional("n_heads", &Own::n_heads).at_least(1).doc("heads of the attention" + otherwise("12"));
    f.optional("hidden_dim", &Own::hidden_dim)
        .at_least(1)
        .doc("features between a layer's two Linears" + otherwise("3072"));
    f.optional("activation", &Own::activation).doc("activation, by transformers' name" + otherwise("gelu"));
    f.optional("dropout", &Own::dropout).at_least(0).at_most(1).doc("dropout, while training" + otherwise("0.1"));
    f.optional("attention_dropout", &Own::attention_dropout)
        .at_least(0)
        .at_most(1)
        .doc("dropout of the attention weights, while training" + otherwise("0.1"));
    f.optional("max_position_embeddings", &Own::max_position_embeddings)
        .at_least(1)
        .doc("number of positions" + otherwise("512"));
    f.optional("initializer_range", &Own::initializer_range)
        .at_least(0)
        .doc("standard deviation of the initial weights" + otherwise("0.02"));
    describe_fields(f);
  }
};

struct DistilBertSettings {
  int64_t vocab_size = 0;
  int64_t dim = 0;
  int64_t n_layers = 0;
  int64_t n_heads = 0;
  int64_t hidden_dim = 0;
  std::string activation;
  double dropout = 0;
  double attention_dropout = 0;
  int64_t max_position_embeddings = 0;
  double initializer_range = 0;
  int64_t pad_token_id = 0;

  DistilBertSettings(const DistilBertOptions& own, ModelConfig& config) {
    config.rename({{"hidden_size", "dim"}, {"num_attention_heads", "n_heads"}, {"num_hidden_layers", "n_layers"}});
    vocab_size = config.vocab_size(own.vocab_size, 30522);
    dim = config.integer("dim", own.dim, 768);
    n_layers = layer_count(config, "n_layers", own.n_layers, 6);
    n_heads = config.integer("n_heads", own.n_heads, 12);
    hidden_dim = config.integer("hidden_dim", own.hidden_dim, 3072);
    activation = config.text("activation", own.activation, "gelu");
    dropout = config.probability("dropout", own.dropout, 0.1);
    attention_dropout = config.probability("attention_dropout", own.attention_dropout, 0.1);
    max_position_embeddings = config.integer("max_position_embeddings", own.max_position_embeddings, 512);
    initializer_range = config.number("initializer_range", own.initializer_range, 0.02);
    config.require("sinusoidal_pos_embds", false, "positions that are not learnt are not available");
    pad_token_id = config.integer("pad_token_id", std::nullopt, 0, 0);
    if (pad_token_id >= vocab_size) config.fail("pad_token_id", "is not in the vocabulary");
    require_heads(dim, n_heads);
  }
};

constexpr double kDistilBertEps = 1e-12;  // of all its LayerNorms

/// The lists of layers of one model.
class DistilBertLayers {
 public:
  DistilBertLayers(const DistilBertSettings& settings, const ModelConfig& config, const LayerInputs& inputs)
      : s_(settings), config_(config), inputs_(inputs) {}

  Listing model() const {
    Listing blocks;
    for (int64_t i = 0; i < s_.n_layers; ++i) {
      const std::string before = i == 0 ? "x" : std::to_string(i - 1);
      blocks.add(block(), "", with_roles(before, inputs_, {kAttentionMask}));
    }
    Listing transformer;
    transformer.add(std::move(blocks), "layer", with_roles("x", inputs_, {kAttentionMask}));
    Listing model;
    model.add(embeddings(), "embeddings", with_roles(kInputIds, inputs_, {kPositionIds}));
    model.add(std::move(transformer), "transformer", with_roles("embeddings", inputs_, {kAttentionMask}));
    return model;
  }

 private:
  json linear(const std::string& name, int64_t features) const { return {{"name", name}, {"out_features", features}}; }

  Listing embeddings() const {
    Listing layers;
    layers.add("Embedding", {{"name", "word_embeddings"},
                             {"inputs", kInputIds},
                             {"num_embeddings", s_.vocab_size},
                             {"embedding_dim", s_.dim},
                             {"padding_idx", s_.pad_token_id}});
    add_positions(layers, inputs_, {{"max_positions", s_.max_position_embeddings}});
    layers.add("Embedding", {{"name", "position_embeddings"},
                             {"inputs", kPositionIds},
                             {"num_embeddings", s_.max_position_embeddings},
                             {"embedding_dim", s_.dim}});
    layers.add("Add", {{"name", "sum"}, {"inputs", {"word_embeddings", "position_embeddings"}}});
    layers.add("LayerNorm", {{"name", "LayerNorm"}, {"eps", kDistilBertEps}}).add("Dropout", {{"p", s_.dropout}});
    return layers;
  }

  Listing block() const {
    Listing ffn;
    ffn.add("Linear", linear("lin1", s_.hidden_dim));
    add_activation(ffn, "activation", s_.activation, config_, "activation");
    ffn.add("Linear", linear("lin2", s_.dim)).add("Dropout", {{"name", "dropout"}, {"p", s_.dropout}});
    Listing block;
    block.add(attention(), "attention", with_roles("x", inputs_, {kAttentionMask}));
    block.add("Add", {{"name", "attended"}, {"inputs", {"attention", "x"}}});
    block.add("LayerNorm", {{"name", "sa_layer_norm"}, {"eps", kDistilBertEps}});
    block.add(std::move(ffn), "ffn");
    block.add("Add", {{"name", "sum"}, {"inputs", {"ffn", "sa_layer_norm"}}});
    block.add("LayerNorm", {{"name", "output_layer_norm"}, {"eps", kDistilBertEps}});
    return block;
  }

  Listing attention() const {
    Listing attention;
    Names attended;
    for (const char* name : {"q_lin", "k_lin", "v_lin"}) {
      json parameters = linear(name, s_.dim);
      parameters["inputs"] = "x";
      attention.add("Linear", parameters);
      attended.emplace_back(name);
    }
    if (has_role(inputs_, kAttentionMask)) attended.emplace_back(kAttentionMask);
    attention.add("ScaledDotProductAttention", {{"name", "attended"},
                                                {"inputs", listed(attended)},
                                                {"num_heads", s_.n_heads},
                                                {"dropout", s_.attention_dropout}});
    attention.add("Linear", linear("out_lin", s_.dim));
    return attention;
  }

  const DistilBertSettings& s_;
  const ModelConfig& config_;
  const LayerInputs& inputs_;
};

/// What follows the encoder.
enum class DistilBertHead { kNone, kSequence, kToken, kMaskedLM };

template <DistilBertHead kHead>
struct DistilBert : DistilBertOptions {
  using Head = DistilBertHead;
  static constexpr bool kClassifies = kHead == Head::kSequence || kHead == Head::kToken;

  static void describe(Fields<DistilBert>& f) {
    describe_distilbert(f);
    if constexpr (kClassifies) {
      f.optional("num_labels", &DistilBert::num_labels)
          .at_least(1)
          .doc("number of classes; null: the value in config, else 2");
    }
    if constexpr (kHead == Head::kSequence) {
      f.optional("seq_classif_dropout", &DistilBert::seq_classif_dropout)
          .at_least(0)
          .at_most(1)
          .doc("dropout before the classifier; null: the value in config, else 0.2");
    }
  }

  Layer build(const LayerInputs& in) const {
    ModelConfig config(*this, "distilbert", architecture());
    const DistilBertSettings settings(*this, config);
    const LayerInputs inputs = by_role(in, fields);
    Listing model = DistilBertLayers(settings, config, inputs).model();
    if constexpr (kHead != Head::kNone) {
      Listing whole;
      whole.add(std::move(model), "distilbert", with_roles(kInputIds, inputs, fields));
      add_head(whole, settings, config);
      model = std::move(whole);
    }
    auto graph = model.build(inputs);
    draw_language_weights(*graph, settings.initializer_range);
    return language_model(std::move(graph), config);
  }

 private:
  static const char* architecture() {
    switch (kHead) {
      case Head::kNone:
        return "DistilBertModel";
      case Head::kSequence:
        return "DistilBertForSequenceClassification";
      case Head::kToken:
        return "DistilBertForTokenClassification";
      default:
        return "DistilBertForMaskedLM";
    }
  }

  void add_head(Listing& whole, const DistilBertSettings& settings, ModelConfig& config) const {
    if constexpr (kHead == Head::kSequence) {
      const int64_t labels = config.num_labels(num_labels);
      const double p = config.probability("seq_classif_dropout", seq_classif_dropout, 0.2);
      whole.add("Select", {{"name", "first"}, {"dim", 1}, {"index", 0}});
      whole.add("Linear", {{"name", "pre_classifier"}, {"out_features", settings.dim}});
      whole.add("ReLU", {{"name", "activation"}}).add("Dropout", {{"name", "dropout"}, {"p", p}});
      whole.add("Linear", {{"name", "classifier"}, {"out_features", labels}});
    } else if constexpr (kHead == Head::kToken) {
      whole.add("Dropout", {{"name", "dropout"}, {"p", settings.dropout}});
      whole.add("Linear", {{"name", "classifier"}, {"out_features", config.num_labels(num_labels)}});
    } else {
      const std::string words = "distilbert.embeddings.word_embeddings";
      whole.add("Linear", {{"name", "vocab_transform"}, {"out_features", settings.dim}});
      add_activation(whole, "activation", settings.activation, config, "activation");
      whole.add("LayerNorm", {{"name", "vocab_layer_norm"}, {"eps", kDistilBertEps}});
      json projector = {{"name", "vocab_projector"}, {"out_features", settings.vocab_size}};
      if (config.ties(std::nullopt, true, "vocab_projector.weight", words + ".weight")) projector["share"] = words;
      whole.add("Linear", projector);
    }
  }
};

}  // namespace

void add_distilberts(LayerRegistry& layers) {
  using Head = DistilBertHead;
  layers.add<DistilBert<Head::kNone>>("DistilBertModel",
                                      "DistilBERT, token ids [N, T] to the last hidden states [N, T, dim]");
  layers.add<DistilBert<Head::kSequence>>("DistilBertForSequenceClassification",
                                          "DistilBERT, token ids [N, T] to logits [N, num_labels]");
  layers.add<DistilBert<Head::kToken>>("DistilBertForTokenClassification",
                                       "DistilBERT, token ids [N, T] to logits [N, T, num_labels]");
  layers.add<DistilBert<Head::kMaskedLM>>("DistilBertForMaskedLM",
                                          "DistilBERT, token ids [N, T] to logits [N, T, vocab_size]");
}

}  // namespace trainrun
