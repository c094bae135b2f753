#include <c10/core/GradMode.h>

#include <cmath>

#include "registry/graph/graph.h"
#include "registry/graph/shape_mode.h"
#include "registry/models/language_model.h"

// GPT-2. Source: Radford et al. 2019, "Language Models are Unsupervised Multitask Learners".

namespace trainrun {
namespace {

using nlohmann::json;

/// What a recipe may say; null: what config.json says, else GPT-2's default (small: 124 million parameters).
struct Gpt2Options : CheckpointOptions {
  std::optional<int64_t> vocab_size;
  std::optional<int64_t> n_positions;
  std::optional<int64_t> n_embd;
  std::optional<int64_t> n_layer;
  std::optional<int64_t> n_head;
  std::optional<int64_t> n_inner;
  std::optional<std::string> activation_function;
  std::optional<double> resid_pdrop;
  std::optional<double> embd_pdrop;
  std::optional<double> attn_pdrop;
  std::optional<double> layer_norm_epsilon;
  std::optional<double> initializer_range;
  std::optional<bool> tie_word_embeddings;
  BatchFields fields = {kInputIds, kAttentionMask, kPositionIds};

  template <class Own>
  static void describe_gpt2(Fields<Own>& f) {
    Own::describe_checkpoint(f);
    const auto probability = [&](const char* name, std::optional<double> Gpt2Options::* member, const char* doc) {
      f.optional(name, member).at_least(0).at_most(1).doc(doc + otherwise("0.1"));
    };
    f.optional("vocab_size", &Own::vocab_size).at_least(1).doc("number of tokens" + otherwise("50257"));
    f.optional("n_positions", &Own::n_positions).at_least(1).doc("number of positions" + otherwise("1024"));
    f.optional("n_embd", &Own::n_embd).at_least(1).doc("features of a token" + otherwise("768"));
    f.optional("n_layer", &Own::n_layer).at_least(1).at_most(kMostLayers).doc("number of blocks" + otherwise("12"));
    f.optional("n_head", &Own::n_head).at_least(1).doc("heads of the attention" + otherwise("12"));
    f.optional("n_inner", &Own::n_inner)
        .at_least(1)
        .doc("features between a block's two linear maps" + otherwise("4 * n_embd"));
    f.optional("activation_function", &Own::activation_function)
        .doc("activation, by transformers' name" + otherwise("gelu_new"));
    probability("resid_pdrop", &Own::resid_pdrop, "dropout of what a block adds, while training");
    probability("embd_pdrop", &Own::embd_pdrop, "dropout of the embeddings, while training");
    probability("attn_pdrop", &Own::attn_pdrop, "dropout of the attention weights, while training");
    f.optional("layer_norm_epsilon", &Own::layer_norm_epsilon)
        .at_least(0)
        .doc("added to the variance" + otherwise("1e-5"));
    f.optional("initializer_range", &Own::initializer_range)
        .at_least(0)
        .doc("standard deviation of the initial weights" + otherwise("0.02"));
    f.optional("tie_word_embeddings", &Own::tie_word_embeddings)
        .doc("one weight for the embedding of tokens and the logits" + otherwise("true"));
    describe_fields(f);
  }
};

struct Gpt2Settings {
  int64_t vocab_size = 0;
  int64_t n_positions = 0;
  int64_t n_embd = 0;
  int64_t n_layer = 0;
  int64_t n_head = 0;
  int64_t n_inner = 0;
  std::string activation_function;
  double resid_pdrop = 0;
  double embd_pdrop = 0;
  double attn_pdrop = 0;
  double layer_norm_epsilon = 0;
  double initializer_range = 0;
  bool tied = true;

  Gpt2Settings(const Gpt2Options& own, ModelConfig& config, bool has_logits) {
    config.rename({{"hidden_size", "n_embd"},
                   {"max_position_embeddings", "n_positions"},
                   {"num_attention_heads", "n_head"},
                   {"num_hidden_layers", "n_layer"}});
    vocab_size = config.vocab_size(own.vocab_size, 50257);
    n_positions = config.integer("n_positions", own.n_positions, 1024);
    n_embd = config.integer("n_embd", own.n_embd, 768);
    n_layer = layer_count(config, "n_layer", own.n_layer, 12);
    n_head = config.integer("n_head", own.n_head, 12);
    n_inner = config.integer_or_null("n_inner", own.n_inner, std::nullopt).value_or(4 * n_embd);
    activation_function = config.text("activation_function", own.activation_function, "gelu_new");
    resid_pdrop = config.probability("resid_pdrop", own.resid_pdrop, 0.1);
    embd_pdrop = config.probability("embd_pdrop", own.embd_pdrop, 0.1);
    attn_pdrop = config.probability("attn_pdrop", own.attn_pdrop, 0.1);
    layer_norm_epsilon = config.number("layer_norm_epsilon", own.layer_norm_epsilon, 1e-5);
    initializer_range = config.number("initializer_range", own.initializer_range, 0.02);
    if (has_logits) tied = config.ties(own.tie_word_embeddings, true, "lm_head.weight", "transformer.wte.weight");
    if (has_logits) config.set("tie_word_embeddings", tied);
    config.require("scale_attn_weights", true, "scores are always divided by the root of a head's features");
    config.require("scale_attn_by_inverse_layer_idx", false, "scores are not scaled by the layer's number");
    config.require("add_cross_attention", false, "cross-attention is not available");
    // Without a word in the file transformers takes ids of GPT-2's own vocabulary, which a smaller one does not have.
    constexpr int64_t kGpt2Vocabulary = 50257;
    for (const char* key : {"bos_token_id", "eos_token_id"}) {
      if (config.in_file(key).is_null() && vocab_size < kGpt2Vocabulary) config.set(key, nullptr);
    }
    require_heads(n_embd, n_head);
  }
};

/// The lists of layers of one model.
class Gpt2Layers {
 public:
  Gpt2Layers(const Gpt2Settings& settings, const ModelConfig& config, const LayerInputs& inputs)
      : s_(settings), config_(config), inputs_(inputs) {}

  Listing model() const {
    Listing model;
    model.add(
        "Embedding",
        {{"name", "wte"}, {"inputs", kInputIds}, {"num_embeddings", s_.vocab_size}, {"embedding_dim", s_.n_embd}});
    add_positions(model, inputs_, {{"max_positions", s_.n_positions}});
    model.add(
        "Embedding",
        {{"name", "wpe"}, {"inputs", kPositionIds}, {"num_embeddings", s_.n_positions}, {"embedding_dim", s_.n_embd}});
    model.add("Add", {{"name", "embedded"}, {"inputs", {"wte", "wpe"}}});
    model.add("Dropout", {{"name", "drop"}, {"p", s_.embd_pdrop}});
    Listing blocks;
    for (int64_t i = 0; i < s_.n_layer; ++i) {
      const std::string before = i == 0 ? "x" : std::to_string(i - 1);
      blocks.add(block(), "", with_roles(before, inputs_, {kAttentionMask}));
    }
    model.add(std::move(blocks), "h", with_roles("drop", inputs_, {kAttentionMask}));
    model.add("LayerNorm", norm("ln_f"));
    return model;
  }

 private:
  json norm(const std::string& name) const { return {{"name", name}, {"eps", s_.layer_norm_epsilon}}; }
  json dropout(const std::string& name) const { return {{"name", name}, {"p", s_.resid_pdrop}}; }
  static json map(const std::string& name, int64_t features) { return {{"name", name}, {"out_features", features}}; }

  Listing block() const {
    Listing mlp;
    mlp.add("TransposedLinear", map("c_fc", s_.n_inner));
    add_activation(mlp, "act", s_.activation_function, config_, "activation_function");
    mlp.add("TransposedLinear", map("c_proj", s_.n_embd)).add("Dropout", dropout("dropout"));
    Listing block;
    block.add("LayerNorm", norm("ln_1"));
    block.add(attention(), "attn", with_roles("ln_1", inputs_, {kAttentionMask}));
    block.add("Add", {{"name", "attended"}, {"inputs", {"attn", "x"}}});
    block.add("LayerNorm", norm("ln_2"));
    block.add(std::move(mlp), "mlp");
    block.add("Add", {{"name", "sum"}, {"inputs", {"attended", "mlp"}}});
    return block;
  }

  Listing attention() const {
    Listing attention;
    attention.add("TransposedLinear", map("c_attn", 3 * s_.n_embd));
    const Names parts = {"query", "key", "value"};
    attention.add("Chunk", {{"name", "parts"}, {"chunks", 3}, {"dim", -1}, {"outputs", listed(parts)}});
    Names attended = parts;
    if (has_role(inputs_, kAttentionMask)) attended.emplace_back(kAttentionMask);
    attention.add("ScaledDotProductAttention", {{"name", "attended"},
                                                {"inputs", listed(attended)},
                                                {"num_heads", s_.n_head},
                                                {"dropout", s_.attn_pdrop},
                                                {"is_causal", true}});
    attention.add("TransposedLinear", map("c_proj", s_.n_embd)).add("Dropout", dropout("resid_dropout"));
    return attention;
  }

  const Gpt2Settings& s_;
  const ModelConfig& config_;
  const LayerInputs& inputs_;
};

/// What ends a block begins smaller, the deeper the model is.
void draw_block_ends(const Graph& graph, double std, int64_t num_layers) {
  if (ShapeMode::active()) return;
  const c10::AutoGradMode no_gradients(false);
  for (const auto& item : graph.named_parameters()) {
    if (!item.key().ends_with("c_proj.weight")) continue;
    at::Tensor(item.value()).normal_(0, std / std::sqrt(2.0 * static_cast<double>(num_layers)));
  }
}

template <bool kHasLogits>
struct Gpt2 : Gpt2Options {
  static void describe(Fields<Gpt2>& f) { describe_gpt2(f); }

  Layer build(const LayerInputs& in) const {
    ModelConfig config(*this, "gpt2", kHasLogits ? "GPT2LMHeadModel" : "GPT2Model");
    const Gpt2Settings settings(*this, config, kHasLogits);
    const LayerInputs inputs = by_role(in, fields);
    Listing model = Gpt2Layers(settings, config, inputs).model();
    if constexpr (kHasLogits) {
      Listing whole;
      whole.add(std::move(model), "transformer", with_roles(kInputIds, inputs, fields));
      json head = {{"name", "lm_head"}, {"out_features", settings.vocab_size}, {"bias", false}};
      if (settings.tied) head["share"] = "transformer.wte";
      whole.add("Linear", head);
      model = std::move(whole);
    }
    auto graph = model.build(inputs);
    draw_language_weights(*graph, settings.initializer_range);
    draw_block_ends(*graph, settings.initializer_range, settings.n_layer);
    return language_model(std::move(graph), config);
  }
};

}  // namespace

void add_gpt2s(LayerRegistry& layers) {
  layers.add<Gpt2<false>>("GPT2Model", "GPT-2, token ids [N, T] to the last hidden states [N, T, n_embd]");
  layers.add<Gpt2<true>>("GPT2LMHeadModel", "GPT-2, token ids [N, T] to logits of the next token [N, T, vocab_size]");
}

}  // namespace trainrun
