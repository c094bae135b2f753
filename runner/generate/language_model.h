#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "registry/catalog.h"
#include "registry/graph/graph.h"
#include "registry/graph/plan.h"
#include "runner/generate/chat_format.h"
#include "runner/generate/text_codec.h"
#include "runner/model/model.h"
#include "runner/recipe/choices.h"

namespace trainrun {

/// A model that gives the logits [N, T, V] of the token that follows each token of [N, T], and how it is run.
struct LanguageModel {
  const Graph* graph = nullptr;  // these two outlive it
  const Plan* plan = nullptr;    // its first output are the logits
  at::Device device = at::kCPU;
  std::optional<at::ScalarType> autocast = std::nullopt;
  std::shared_ptr<const TextCodec> codec = nullptr;  // null: prompts are tokens, and so is what comes
  std::vector<std::string> ends = {};                // what the data put behind each document (`end_of_document`)
  std::string folder;                                // in Hugging Face's layout, that it comes from; "" for none
  ChatSource chat = {};                              // how conversations with it are written
  std::shared_ptr<const Plan> own_plan = nullptr;    // `plan`, where it runs one layer of a recipe's model alone
  /// What all ranks go on with of what each has chosen: where every rank takes part in each pass, rank 0's tokens.
  std::function<std::vector<int64_t>(const std::vector<int64_t>&)> agree = nullptr;
};

/// Of a recipe's model; `learnt`: what its training data have learnt. Where the model reads several texts at once, such
/// as pairs of answers, it is the registered language model among its layers. Throws Error where it is no language
/// model, or does not fit its tokenizer.
LanguageModel language_model_of(const Recipe& recipe, const Model& model, at::Device device,
                                const nlohmann::json& learnt);
/// Throws Error unless the model reads integers [N, T] and gives [N, T, V], with V for all tokens of its codec.
void check_language_model(const LanguageModel& model);

/// A model that Hugging Face's library has saved: config.json with the registered layer's name under `architectures`,
/// weights, and a tokenizer.
class PretrainedModel {
 public:
  /// Throws DataError, Error where the folder holds no such model.
  PretrainedModel(const std::string& folder, const Catalog& catalog, const DeviceChoice& device);
  const LanguageModel& model() const { return model_; }
  /// Whether there is a config.json, and no run's recipe.
  static bool is_in(const std::string& folder);

 private:
  std::shared_ptr<Graph> graph_;
  Plan plan_;
  LanguageModel model_;
};

}  // namespace trainrun
