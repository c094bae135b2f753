#pragma once

#include <nlohmann/json_fwd.hpp>

#include <string>

#include "runner/train/evaluation.h"

namespace trainrun {

/// What `trainrun export` overrides in a run's recipe: TorchScript knows no fusions of ours, and computes in float32.
std::vector<std::string> export_overrides();

/// The slots of the model's graph that the recipe's losses read, each once, in their order; else its first output.
std::vector<size_t> outputs_of_losses(const Recipe& recipe, const Model& model);

// What is known of the data goes along (file_metadata): in a safetensors file among its metadata, in TorchScript among
// its extra files.

/// Writes the state dict, averaged weights (EMA) where the run evaluates with them, as Python's safetensors reads it.
void export_safetensors(TrainedRun& run, const std::string& path);

/// The same with the recipe's adapters merged into the weights. Throws Error if it has none.
void export_merged_safetensors(TrainedRun& run, const std::string& path);

/// Writes the model in evaluation mode as a TorchScript module, which Python's torch.jit.load reads: its inputs are the
/// fields that the graph reads, in its order, for any number of samples; its output is the last layer's first. Its
/// parameters have the state dict's names. What was traced is run on other samples and compared; throws Error where the
/// results differ, as for layers that compute outside of LibTorch.
void export_torchscript(TrainedRun& run, const std::string& path);

/// Writes the model in evaluation mode as ONNX: its inputs are the fields that the layers read, for any number of
/// samples, and lengths or image sizes where the model has the same weights for all; its outputs are those that the
/// losses read. Adapters are merged. What is known of the data is among its metadata. Weights of more than 2 GB, and of
/// `export_external_onnx` any, go to `path`.data. Throws RecipeError where layers have no form in ONNX.
void export_onnx(TrainedRun& run, const std::string& path);
void export_external_onnx(TrainedRun& run, const std::string& path);

/// Writes a new folder that transformers opens with from_pretrained and as a pipeline: config.json with the names of the
/// labels, model.safetensors, the tokenizer of the data with its chat template, generation_config.json of a causal
/// language model, and a model card, README.md. Adapters are merged into the weights. Throws Error unless the recipe's
/// model is one registered language model or a vision model that transformers has, too.
void export_huggingface(TrainedRun& run, const std::string& folder);

/// The same of a vision model, with preprocessor_config.json made of the evaluation's transforms; false, and nothing is
/// written, where the recipe's model is not one layer that transformers has.
bool export_vision_model(TrainedRun& run, const std::string& folder);

/// Adds to such a folder, of a SentenceTransformer, the files by which the package sentence-transformers opens it, and
/// is true; of other models false, and adds nothing. `config`: what the folder's config.json says.
bool export_sentence_modules(TrainedRun& run, const nlohmann::json& config, const std::string& folder);

/// Writes a file that llama.cpp and its kin read, of a decoder of Llama's, Mistral's or Qwen's kind: weights as `dtype`
/// (one of gguf_types()), adapters merged, vectors in float32, with the tokenizer and its chat template. Throws Error for
/// other models, and for what GGUF cannot say.
void export_gguf(TrainedRun& run, const std::string& path, const std::string& dtype);
/// "f32", "f16", "q8_0", "bf16".
std::vector<std::string> gguf_types();

/// Writes a new folder that Python's package peft opens with PeftModel.from_pretrained: adapter_config.json and
/// adapter_model.safetensors; the tokenizer of the data, and a model card. Throws Error if the recipe has no adapters,
/// or such that peft does not have.
void export_peft(TrainedRun& run, const std::string& folder);

}  // namespace trainrun
