#include "registry/graph/graph.h"
#include "registry/models/language_model.h"
#include "registry/models/rope_settings.h"

// Decoders of Llama's kind: Llama, Qwen2, Qwen3 and Mistral. Sources: Touvron et al. 2023, "LLaMA: Open and Efficient Foundation
// Language Models"; Yang et al. 2024, "Qwen2 Technical Report", and 2025, "Qwen3
// Technical Report"; Jiang et al. 2023, "Mistral 7B".

namespace trainrun {
namespace {

using nlohmann::json;

/// What tells the families apart, and the defaults of transformers.
struct LlamaFamily {
  const char* model_type;
  const char* architecture;
  int64_t vocab_size;
  int64_t intermediate_size;
  std::optional<int64_t> num_key_value_heads;
  int64_t max_position_embeddings;
  std::optional<int64_t> head_dim = std::nullopt;  // else hidden_size / num_attention_heads
  std::optional<int64_t> sliding_window = std::nullopt;
  bool query_bias = false;    // biases of queries, keys and values alone, always
  bool chooses_bias = false;  // attention_bias gives biases to all of the attention's Linears
  bool norms_heads = false;   // queries and keys are normalized, each head by itself
};
constexpr LlamaFamily kLlama = {.model_type = "llama",
                                .architecture = "LlamaForCausalLM",
                                .vocab_size = 32000,
                                .intermediate_size = 11008,
                                .num_key_value_heads = std::nullopt,
                                .max_position_embeddings = 2048,
                                .chooses_bias = true};
constexpr LlamaFamily kQwen2 = {.model_type = "qwen2",
                                .architecture = "Qwen2ForCausalLM",
                                .vocab_size = 151936,
                                .intermediate_size = 22016,
                                .num_key_value_heads = 32,
                                .max_position_embeddings = 32768,
                                .query_bias = true};
constexpr LlamaFamily kQwen3 = {.model_type = "qwen3",
                                .architecture = "Qwen3ForCausalLM",
                                .vocab_size = 151936,
                                .intermediate_size = 22016,
                                .num_key_value_heads = 32,
                                .max_position_embeddings = 32768,
                                .head_dim = 128,
                                .chooses_bias = true,
                                .norms_heads = true};
constexpr LlamaFamily kMistral = {.model_type = "mistral",
                                  .architecture = "MistralForCausalLM",
                                  .vocab_size = 32000,
                                  .intermediate_size = 14336,
                                  .num_key_value_heads = 8,
                                  .max_position_embeddings = 131072,
                                  .sliding_window = 4096};

/// What a recipe may say; null: what config.json says, else the family's default.
struct LlamaOptions : CheckpointOptions {
  std::optional<int64_t> vocab_size;
  std::optional<int64_t> hidden_size;
  std::optional<int64_t> intermediate_size;
  std::optional<int64_t> num_hidden_layers;
  std::optional<int64_t> num_attention_heads;
  std::optional<int64_t> num_key_value_heads;
  std::optional<int64_t> head_dim;
  std::optional<std::string> hidden_act;
  std::optional<int64_t> max_position_embeddings;
  std::optional<double> initializer_range;
  std::optional<double> rms_norm_eps;
  std::optional<double> rope_theta;
  std::optional<bool> attention_bias;
  std::optional<bool> mlp_bias;
  std::optional<double> attention_dropout;
  std::optional<bool> tie_word_embeddings;
  std::optional<int64_t> num_labels;  // these two of the models that classify texts
  std::optional<int64_t> pad_token_id;
  BatchFields fields = {kInputIds, kAttentionMask, kPositionIds};

  template <class Own>
  static void describe_llama(Fields<Own>& f, const LlamaFamily& family) {
    Own::describe_checkpoint(f);
    const auto count = [&](const char* name, std::optional<int64_t> LlamaOptions::* member, const char* doc,
                           const std::string& fallback) {
      return f.optional(name, member).at_least(1).doc(doc + otherwise(fallback));
    };
    count("vocab_size", &Own::vocab_size, "number of tokens", std::to_string(family.vocab_size));
    count("hidden_size", &Own::hidden_size, "features of a token", "4096");
    count("intermediate_size", &Own::intermediate_size, "features of a layer's gate",
          std::to_string(family.intermediate_size));
    count("num_hidden_layers", &Own::num_hidden_layers, "number of layers", "32").at_most(kMostLayers);
    count("num_attention_heads", &Own::num_attention_heads, "heads of queries", "32");
    count("num_key_value_heads", &Own::num_key_value_heads, "heads of keys and values",
          family.num_key_value_heads ? std::to_string(*family.num_key_value_heads) : "num_attention_heads");
    count("head_dim", &Own::head_dim, "features of a head",
          family.head_dim ? std::to_string(*family.head_dim) : "hidden_size / num_attention_heads");
    count("max_position_embeddings", &Own::max_position_embeddings, "the longest sequences the model is meant for",
          std::to_string(family.max_position_embeddings));
    f.optional("hidden_act", &Own::hidden_act).doc("activation of the gate, by transformers' name" + otherwise("silu"));
    f.optional("initializer_range", &Own::initializer_range)
        .at_least(0)
        .doc("standard deviation of the initial weights" + otherwise("0.02"));
    f.optional("rms_norm_eps", &Own::rms_norm_eps).at_least(0).doc("added to the mean square" + otherwise("1e-6"));
    f.optional("rope_theta", &Own::rope_theta)
        .greater_than(0)
        .doc("base of the rotary positions' wavelengths" + otherwise("10000"));
    if (family.chooses_bias) {
      f.optional("attention_bias", &Own::attention_bias).doc("biases of the attention's Linears" + otherwise("false"));
    }
    if (&family == &kLlama) {
      f.optional("mlp_bias", &Own::mlp_bias).doc("biases of the gate's Linears" + otherwise("false"));
    }
    f.optional("attention_dropout", &Own::attention_dropout)
        .at_least(0)
        .at_most(1)
        .doc("dropout of the attention weights, while training" + otherwise("0"));
    f.optional("tie_word_embeddings", &Own::tie_word_embeddings)
        .doc("one weight for the embedding of tokens and the logits" + otherwise("false"));
    describe_fields(f);
  }
};

struct LlamaSettings {
  int64_t vocab_size = 0;
  int64_t hidden_size = 0;
  int64_t intermediate_size = 0;
  int64_t num_hidden_layers = 0;
  int64_t num_attention_heads = 0;
  int64_t num_key_value_heads = 0;
  int64_t head_dim = 0;
  std::string hidden_act;
  double initializer_range = 0;
  double rms_norm_eps = 0;
  bool query_bias = false;
  bool output_bias = false;
  bool mlp_bias = false;
  bool norms_heads = false;
  double attention_dropout = 0;
  bool tied = false;
  json rope;                                           // parameters of RotaryEmbedding
  std::vector<std::optional<int64_t>> sliding_window;  // of each layer

  LlamaSettings(const LlamaOptions& own, const LlamaFamily& family, ModelConfig& config);

 private:
  void read_windows(const LlamaFamily& family, ModelConfig& config);
};

LlamaSettings::LlamaSettings(const LlamaOptions& own, const LlamaFamily& family, ModelConfig& config) {
  vocab_size = config.vocab_size(own.vocab_size, family.vocab_size);
  hidden_size = config.integer("hidden_size", own.hidden_size, 4096);
  intermediate_size = config.integer("intermediate_size", own.intermediate_size, family.intermediate_size);
  num_hidden_layers = layer_count(config, "num_hidden_layers", own.num_hidden_layers, 32);
  num_attention_heads = config.integer("num_attention_heads", own.num_attention_heads, 32);
  num_key_value_heads =
      config.integer_or_null("num_key_value_heads", own.num_key_value_heads, family.num_key_value_heads)
          .value_or(num_attention_heads);
  config.set("num_key_value_heads", num_key_value_heads);
  if (num_attention_heads % num_key_value_heads != 0) {
    config.fail("num_key_value_heads", std::to_string(num_key_value_heads) + " heads of keys do not divide the " +
                                           std::to_string(num_attention_heads) + " of queries");
  }
  const auto own_head = config.integer_or_null("head_dim", own.head_dim, family.head_dim);
  if (!own_head) require_heads(hidden_size, num_attention_heads);
  head_dim = own_head.value_or(hidden_size / num_attention_heads);
  if (head_dim % 2 != 0) config.fail("head_dim", "must be even, is " + std::to_string(head_dim));
  config.set("head_dim", head_dim);
  hidden_act = config.text("hidden_act", own.hidden_act, "silu");
  const int64_t longest =
      config.integer("max_position_embeddings", own.max_position_embeddings, family.max_position_embeddings);
  initializer_range = config.number("initializer_range", own.initializer_range, 0.02);
  rms_norm_eps = config.number("rms_norm_eps", own.rms_norm_eps, 1e-6);
  attention_dropout = config.probability("attention_dropout", own.attention_dropout, 0);
  tied = config.ties(own.tie_word_embeddings, false, "lm_head.weight", "model.embed_tokens.weight");
  config.set("tie_word_embeddings", tied);
  query_bias = family.query_bias;
  norms_heads = family.norms_heads;
  if (family.chooses_bias) query_bias = output_bias = config.flag("attention_bias", own.attention_bias, false);
  if (&family == &kLlama) mlp_bias = config.flag("mlp_bias", own.mlp_bias, false);
  rope = rope_settings(config, own.rope_theta, head_dim, longest);
  read_windows(family, config);
}

/// Which layers attend to a window alone: Mistral's all, Qwen's last ones where use_sliding_window says so.
void LlamaSettings::read_windows(const LlamaFamily& family, ModelConfig& config) {
  sliding_window.resize(static_cast<size_t>(num_hidden_layers));
  if (&family == &kLlama) return;  // as transformers' Llama, which has no windows
  std::optional<int64_t> window;
  int64_t first = 0;
  if (&family == &kMistral) {
    window = config.integer_or_null("sliding_window", std::nullopt, family.sliding_window);
  } else if (config.flag("use_sliding_window", std::nullopt, false)) {
    window = config.integer("sliding_window", std::nullopt, 4096);
    first = config.integer("max_window_layers", std::nullopt, 28, 0);
  } else {
    config.know({"sliding_window", "max_window_layers"});  // of windows that are not used
  }
  const json types = config.in_file("layer_types");
  if (types.is_array() && window && static_cast<int64_t>(types.size()) != num_hidden_layers) {
    config.fail("layer_types", "names " + std::to_string(types.size()) + " layers, but there are " +
                                   std::to_string(num_hidden_layers));
  }
  for (int64_t i = first; window && i < num_hidden_layers; ++i) sliding_window[static_cast<size_t>(i)] = window;
  for (size_t i = 0; window && types.is_array() && i < types.size(); ++i) {
    if (types[i] != "full_attention" && types[i] != "sliding_attention") {
      config.fail("layer_types", "layers are of full_attention or sliding_attention");
    }
    sliding_window[i] = types[i] == "sliding_attention" ? window : std::nullopt;
  }
}

/// The lists of layers of one model.
class LlamaLayers {
 public:
  LlamaLayers(const LlamaSettings& settings, const ModelConfig& config, const LayerInputs& inputs)
      : s_(settings), config_(config), inputs_(inputs) {}

  Listing model() const {
    const std::vector<std::string> roles = {kAttentionMask, kPositionIds};
    Listing blocks;
    for (int64_t i = 0; i < s_.num_hidden_layers; ++i) {
      const std::string before = i == 0 ? "x" : std::to_string(i - 1);
      blocks.add(block(s_.sliding_window[static_cast<size_t>(i)]), "", with_roles(before, inputs_, roles));
    }
    Listing model;
    model.add("Embedding", {{"name", "embed_tokens"},
                            {"inputs", kInputIds},
                            {"num_embeddings", s_.vocab_size},
                            {"embedding_dim", s_.hidden_size}});
    model.add(std::move(blocks), "layers", with_roles("embed_tokens", inputs_, roles));
    model.add("RMSNorm", norm("norm"));
    return model;
  }

 private:
  json norm(const std::string& name) const { return {{"name", name}, {"eps", s_.rms_norm_eps}}; }
  static json linear(const std::string& name, int64_t features, bool bias, const std::string& input) {
    return {{"name", name}, {"out_features", features}, {"bias", bias}, {"inputs", input}};
  }

  Listing block(std::optional<int64_t> window) const {
    Listing block;
    block.add("RMSNorm", norm("input_layernorm"));
    block.add(attention(window), "self_attn", with_roles("input_layernorm", inputs_, {kAttentionMask, kPositionIds}));
    block.add("Add", {{"name", "attended"}, {"inputs", {"x", "self_attn"}}});
    block.add("RMSNorm", norm("post_attention_layernorm"));
    block.add(mlp(), "mlp");
    block.add("Add", {{"name", "sum"}, {"inputs", {"attended", "mlp"}}});
    return block;
  }

  Listing attention(std::optional<int64_t> window) const {
    Listing attention;
    const int64_t of_keys = s_.num_key_value_heads * s_.head_dim;
    attention.add("Linear", linear("q_proj", s_.num_attention_heads * s_.head_dim, s_.query_bias, "x"));
    attention.add("Linear", linear("k_proj", of_keys, s_.query_bias, "x"));
    attention.add("Linear", linear("v_proj", of_keys, s_.query_bias, "x"));
    json rotary = s_.rope;
    rotary["name"] = "rotary";
    Names turned = {"q_proj", "k_proj"};
    if (s_.norms_heads) turned = {add_head_norm(attention, "q"), add_head_norm(attention, "k")};
    if (has_role(inputs_, kPositionIds)) turned.emplace_back(kPositionIds);
    rotary["inputs"] = listed(turned);
    rotary["outputs"] = {"query", "key"};
    attention.add("RotaryEmbedding", rotary);
    Names attended = {"query", "key", "v_proj"};
    if (has_role(inputs_, kAttentionMask)) attended.emplace_back(kAttentionMask);
    json attends = {{"name", "attended"},
                    {"inputs", listed(attended)},
                    {"num_heads", s_.num_attention_heads},
                    {"num_key_value_heads", s_.num_key_value_heads},
                    {"dropout", s_.attention_dropout},
                    {"is_causal", true}};
    if (window) attends["sliding_window"] = *window;
    attention.add("ScaledDotProductAttention", attends);
    attention.add("Linear", linear("o_proj", s_.hidden_size, s_.output_bias, "attended"));
    return attention;
  }

  /// Normalizes each head of q_proj or k_proj by itself; the name of what gives it.
  std::string add_head_norm(Listing& attention, const std::string& of) const {
    attention.add(
        "Unflatten",
        {{"name", of + "_heads"}, {"inputs", of + "_proj"}, {"dim", -1}, {"unflattened_size", {-1, s_.head_dim}}});
    attention.add("RMSNorm", norm(of + "_norm"));
    attention.add("Flatten", {{"name", of + "_normed"}, {"start_dim", 2}});
    return of + "_normed";
  }

  Listing mlp() const {
    Listing mlp;
    mlp.add("Linear", linear("gate_proj", s_.intermediate_size, s_.mlp_bias, "x"));
    add_activation(mlp, "act_fn", s_.hidden_act, config_, "hidden_act");
    mlp.add("Linear", linear("up_proj", s_.intermediate_size, s_.mlp_bias, "x"));
    mlp.add("Mul", {{"name", "gated"}, {"inputs", {"act_fn", "up_proj"}}});
    mlp.add("Linear", linear("down_proj", s_.hidden_size, s_.mlp_bias, "gated"));
    return mlp;
  }

  const LlamaSettings& s_;
  const ModelConfig& config_;
  const LayerInputs& inputs_;
};

/// A text's logits are those of its last token, as in transformers' GenericForSequenceClassification.
template <const LlamaFamily& kFamily>
struct LlamaClassifierOf : LlamaOptions {
  static void describe(Fields<LlamaClassifierOf>& f) {
    describe_llama(f, kFamily);
    f.optional("num_labels", &LlamaClassifierOf::num_labels)
        .at_least(1)
        .doc("number of classes; 1 for a score, as in reward models; null: the value in config, else 2");
    f.optional("pad_token_id", &LlamaClassifierOf::pad_token_id)
        .at_least(0)
        .doc(
            "the padding token, before which a text ends; null: the value in config, else the text ends where "
            "attention_mask does");
  }

  Layer build(const LayerInputs& in) const {
    const std::string model_name = kFamily.architecture;
    const std::string family = model_name.substr(0, model_name.find("ForCausalLM"));
    ModelConfig config(*this, kFamily.model_type, family + "ForSequenceClassification");
    const LlamaSettings settings(*this, kFamily, config);
    const LayerInputs inputs = by_role(in, fields);
    Listing whole;
    whole.add(LlamaLayers(settings, config, inputs).model(), "model", with_roles(kInputIds, inputs, fields));
    json last = {{"name", "last"}};
    Names read = {"model"};
    const auto padding = config.integer_or_null("pad_token_id", pad_token_id, std::nullopt, 0);
    if (padding) {
      last["padding"] = *padding;
      read.emplace_back(kInputIds);
    } else if (has_role(inputs, kAttentionMask)) {
      read.emplace_back(kAttentionMask);
    }
    last["inputs"] = listed(read);
    whole.add("LastToken", last);
    whole.add("Linear", {{"name", "score"}, {"out_features", config.num_labels(num_labels)}, {"bias", false}});
    auto graph = whole.build(inputs);
    draw_language_weights(*graph, settings.initializer_range);
    return language_model(std::move(graph), config);
  }
};

template <const LlamaFamily& kFamily>
struct LlamaOf : LlamaOptions {
  static void describe(Fields<LlamaOf>& f) { describe_llama(f, kFamily); }

  Layer build(const LayerInputs& in) const {
    ModelConfig config(*this, kFamily.model_type, kFamily.architecture);
    const LlamaSettings settings(*this, kFamily, config);
    const LayerInputs inputs = by_role(in, fields);
    Listing whole;
    whole.add(LlamaLayers(settings, config, inputs).model(), "model", with_roles(kInputIds, inputs, fields));
    json head = {{"name", "lm_head"}, {"out_features", settings.vocab_size}, {"bias", false}};
    if (settings.tied) head["share"] = "model.embed_tokens";
    whole.add("Linear", head);
    auto graph = whole.build(inputs);
    draw_language_weights(*graph, settings.initializer_range);
    return language_model(std::move(graph), config);
  }
};

}  // namespace

void add_llamas(LayerRegistry& layers) {
  const std::string doc = ", token ids [N, T] to logits of the next token [N, T, vocab_size]";
  layers.add<LlamaOf<kLlama>>("LlamaForCausalLM", "Llama" + doc);
  layers.add<LlamaOf<kQwen2>>("Qwen2ForCausalLM", "Qwen2" + doc);
  layers.add<LlamaOf<kQwen3>>("Qwen3ForCausalLM", "Qwen3" + doc);
  layers.add<LlamaOf<kMistral>>("MistralForCausalLM", "Mistral" + doc);
  const std::string to_classes = ", token ids [N, T] to logits [N, num_labels] of each text's last token";
  layers.add<LlamaClassifierOf<kLlama>>("LlamaForSequenceClassification", "Llama" + to_classes);
  layers.add<LlamaClassifierOf<kQwen2>>("Qwen2ForSequenceClassification", "Qwen2" + to_classes);
  layers.add<LlamaClassifierOf<kQwen3>>("Qwen3ForSequenceClassification", "Qwen3" + to_classes);
  layers.add<LlamaClassifierOf<kMistral>>("MistralForSequenceClassification", "Mistral" + to_classes);
}

}  // namespace trainrun
