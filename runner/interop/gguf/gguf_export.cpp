#include <ATen/ops/tensor.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <numbers>
#include <optional>

#include "registry/language/text_forms.h"
#include "runner/interop/export_files.h"
#include "runner/interop/exported_data.h"
#include "runner/interop/exported_model.h"
#include "runner/interop/gguf/gguf_file.h"
#include "runner/interop/gguf/gguf_tokenizer.h"
#include "runner/interop/model_export.h"
#include "runner/interop/tokenizer_export.h"

namespace trainrun {
namespace {

using nlohmann::json;

[[noreturn]] void refuse(const std::string& what) {
  throw Error("export: --format gguf: " + what + "; write --format huggingface or safetensors");
}

/// llama.cpp's name for a family of models, by the model_type of config.json. Source: llama.cpp's gguf-py, constants.py.
std::string architecture_of(const json& config) {
  auto type = config.value("model_type", std::string());
  if (type == "llama" || type == "qwen2" || type == "qwen3") return type;
  if (type == "mistral") return "llama";
  refuse("is for LlamaForCausalLM, MistralForCausalLM, Qwen2ForCausalLM and Qwen3ForCausalLM, but the model is of " +
         (type.empty() ? "none of these" : type));
}

void require_no_windows(const json& config) {
  const json window = config.value("sliding_window", json());
  const bool is_used =
      config.value("model_type", "") == "mistral" ? !window.is_null() : config.value("use_sliding_window", false);
  if (is_used) refuse("the model's layers attend to a window of the text alone, which GGUF cannot say for this model");
}

/// The name in GGUF of a part of a layer, and of the others.
struct NamePair {
  const char* ours;
  const char* theirs;
};
constexpr std::array kLayerParts = {
    NamePair{"self_attn.q_proj", "attn_q"},          NamePair{"self_attn.k_proj", "attn_k"},
    NamePair{"self_attn.v_proj", "attn_v"},          NamePair{"self_attn.o_proj", "attn_output"},
    NamePair{"self_attn.q_norm", "attn_q_norm"},     NamePair{"self_attn.k_norm", "attn_k_norm"},
    NamePair{"mlp.gate_proj", "ffn_gate"},           NamePair{"mlp.up_proj", "ffn_up"},
    NamePair{"mlp.down_proj", "ffn_down"},           NamePair{"input_layernorm", "attn_norm"},
    NamePair{"post_attention_layernorm", "ffn_norm"}};
constexpr std::array kOtherParts = {NamePair{"model.embed_tokens", "token_embd"}, NamePair{"model.norm", "output_norm"},
                                    NamePair{"lm_head", "output"}};

template <size_t kCount>
std::optional<std::string> found_in(const std::array<NamePair, kCount>& names, const std::string& ours) {
  const auto* const found = std::ranges::find_if(names, [&](const NamePair& pair) { return ours == pair.ours; });
  return found == names.end() ? std::nullopt : std::optional<std::string>(found->theirs);
}

/// "model.layers.3.self_attn.q_proj.weight" is "blk.3.attn_q.weight".
std::string gguf_name(const std::string& name) {
  const size_t dot = name.rfind('.');
  const std::string part = name.substr(0, dot), kind = name.substr(dot);
  const std::string layers = "model.layers.";
  std::optional<std::string> theirs = found_in(kOtherParts, part);
  if (part.starts_with(layers)) {
    const size_t end = part.find('.', layers.size());
    theirs = end == std::string::npos ? std::nullopt : found_in(kLayerParts, part.substr(end + 1));
    if (theirs) theirs = "blk." + part.substr(layers.size(), end - layers.size()) + "." + *theirs;
  }
  if (!theirs) refuse("there is no name for the tensor " + name);
  return *theirs + kind;
}

/// llama.cpp turns neighbouring features of a head by one angle, transformers those half a head apart.
at::Tensor with_pairs_together(const at::Tensor& tensor, int64_t heads) {
  std::vector<int64_t> sizes = tensor.sizes().vec(), split = {heads, 2, sizes[0] / heads / 2};
  split.insert(split.end(), sizes.begin() + 1, sizes.end());
  return tensor.reshape(split).transpose(1, 2).reshape(sizes);
}

/// For each frequency of a head the number by which Llama 3.1 divides it. Source: transformers, modeling_rope_utils.py,
/// _compute_llama3_parameters.
at::Tensor llama3_divisors(const json& rope, int64_t head_dim) {
  const double factor = rope.at("factor"), low = rope.at("low_freq_factor"), high = rope.at("high_freq_factor");
  const double original = rope.at("original_max_position_embeddings"), theta = rope.at("rope_theta");
  std::vector<float> divisors;
  for (int64_t i = 0; i < head_dim; i += 2) {
    const double length =
        2 * std::numbers::pi * std::pow(theta, static_cast<double>(i) / static_cast<double>(head_dim));
    const double smooth = std::clamp((original / length - low) / (high - low), 0.0, 1.0);
    divisors.push_back(static_cast<float>(1 / ((1 - smooth) / factor + smooth)));
  }
  return at::tensor(divisors);
}

void add_rope(GgufFile& file, const std::string& prefix, const json& config) {
  const json& rope = config.at("rope_parameters");
  const auto number = [&](const char* key) { return rope.at(key).get<float>(); };
  file.set(prefix + "rope.freq_base", number("rope_theta"));
  const auto type = rope.at("rope_type").get<std::string>();
  if (type == "llama3") {
    file.tensors.push_back({"rope_freqs.weight", llama3_divisors(rope, config.at("head_dim")), GgufType::kF32});
  } else if (type != "default") {
    file.set(prefix + "rope.scaling.type", type);
    file.set(prefix + "rope.scaling.factor", number("factor"));
  }
  if (type == "yarn") {
    file.set(prefix + "rope.scaling.original_context_length",
             rope.at("original_max_position_embeddings").get<uint32_t>());
    file.set(prefix + "rope.scaling.yarn_beta_fast", number("beta_fast"));
    file.set(prefix + "rope.scaling.yarn_beta_slow", number("beta_slow"));
    if (rope.contains("attention_factor")) file.set(prefix + "rope.scaling.attn_factor", number("attention_factor"));
  }
}

void add_sizes(GgufFile& file, const std::string& architecture, const json& config) {
  const std::string prefix = architecture + ".";
  constexpr std::array kSizes = {NamePair{"max_position_embeddings", "context_length"},
                                 NamePair{"hidden_size", "embedding_length"},
                                 NamePair{"num_hidden_layers", "block_count"},
                                 NamePair{"intermediate_size", "feed_forward_length"},
                                 NamePair{"num_attention_heads", "attention.head_count"},
                                 NamePair{"num_key_value_heads", "attention.head_count_kv"},
                                 NamePair{"head_dim", "attention.key_length"},
                                 NamePair{"head_dim", "attention.value_length"},
                                 NamePair{"head_dim", "rope.dimension_count"},
                                 NamePair{"vocab_size", "vocab_size"}};
  for (const auto& [ours, theirs] : kSizes) file.set(prefix + theirs, config.at(ours).get<uint32_t>());
  file.set(prefix + "attention.layer_norm_rms_epsilon", config.at("rms_norm_eps").get<float>());
  add_rope(file, prefix, config);
}

struct TypeName {
  const char* name;
  GgufType type;
  uint32_t file_type;  // llama.cpp's llama_ftype
};
constexpr std::array kTypes = {TypeName{"f32", GgufType::kF32, 0}, TypeName{"f16", GgufType::kF16, 1},
                               TypeName{"q8_0", GgufType::kQ8, 7}, TypeName{"bf16", GgufType::kBf16, 32}};

/// Vectors stay as they are, as llama.cpp's converter has it; rows that do not divide into blocks take float16.
GgufType type_for(const at::Tensor& tensor, GgufType wanted, int64_t& uneven) {
  if (tensor.dim() == 1) return GgufType::kF32;
  if (wanted != GgufType::kQ8 || tensor.size(-1) % kQ8Block == 0) return wanted;
  ++uneven;
  return GgufType::kF16;
}

void add_tensors(TrainedRun& run, GgufFile& file, const ExportedModel& model, GgufType wanted) {
  const json& config = model.found.record->config;
  const bool turns_pairs = architecture_of(config) == "llama";
  int64_t uneven = 0;
  for (const auto& [name, tensor] : model.tensors) {
    const bool is_query = name.find(".q_proj.") != std::string::npos,
               is_key = name.find(".k_proj.") != std::string::npos;
    const char* const heads = is_query ? "num_attention_heads" : "num_key_value_heads";
    const at::Tensor own = turns_pairs && (is_query || is_key)
                               ? with_pairs_together(tensor.detach(), config.at(heads).get<int64_t>())
                               : tensor.detach();
    file.tensors.push_back({gguf_name(name), own, type_for(own, wanted, uneven)});
  }
  if (uneven == 0) return;
  run.add_notes({counted(uneven, "tensor has", "tensors have") +
                 " rows of a length that 32 does not divide: written as f16, not as q8_0"});
}

}  // namespace

std::vector<std::string> gguf_types() {
  std::vector<std::string> names;
  for (const TypeName& type : kTypes) names.emplace_back(type.name);
  return names;
}

void export_gguf(TrainedRun& run, const std::string& path, const std::string& dtype) {
  const EvaluationScope scope(run.callbacks());
  const auto* const type = std::ranges::find_if(kTypes, [&](const TypeName& known) { return dtype == known.name; });
  const ExportedModel model = exported_language_model(run, "gguf");
  const json& config = model.found.record->config;
  const std::string architecture = architecture_of(config);
  require_no_windows(config);
  GgufFile file;
  file.set("general.architecture", architecture);
  file.set("general.type", std::string("model"));
  file.set("general.name", run.recipe().name);
  file.set("general.file_type", type->file_type);
  file.set("general.quantization_version", uint32_t{2});
  add_sizes(file, architecture, config);
  if (const auto tokenizer = tokenizer_of_data(run, model.found.record->pretrained)) {
    const NewFolder folder(path + ".tokenizer");  // never finished, so that it goes
    const auto written = export_tokenizer(run, *tokenizer, config, std::nullopt, folder.path());
    if (!written) refuse("the tokenizer in " + tokenizer->given.string() + " cannot be read");
    add_tokenizer(file, folder.path(), *written, config.at("vocab_size").get<int64_t>());
  } else {
    file.set("tokenizer.ggml.model", std::string("none"));
    run.add_notes({"the training data were tokens, not texts, and name no tokenizer, so the file has none"});
  }
  for (const auto& [name, value] : file_metadata(run)) {
    if (name.starts_with("trainrun.")) file.set(name, value);
  }
  add_tensors(run, file, model, type->type);
  file.write(path);
}

}  // namespace trainrun
