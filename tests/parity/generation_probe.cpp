#include "tests/parity/generation_probe.h"

#include <nlohmann/json.hpp>

#include "runner/generate/generation_config.h"
#include "runner/generate/next_token.h"
#include "runner/generate/token_sampler.h"
#include "runner/model/recipe_loader.h"

namespace trainrun {

using nlohmann::json;

json next_logits(const Catalog& catalog, const json& request, std::map<std::string, at::Tensor>& results) {
  std::unique_ptr<Model> trained;
  std::unique_ptr<PretrainedModel> pretrained;
  LanguageModel language;
  if (request.contains("folder")) {
    pretrained = std::make_unique<PretrainedModel>(request["folder"].get<std::string>(), catalog, DeviceChoice());
    language = pretrained->model();
  } else {
    Catalog own = catalog;
    const LoadedRecipe loaded = load_recipe(request.at("recipe").get<std::string>(), {}, own);
    at::manual_seed(static_cast<uint64_t>(loaded.recipe.seed));
    trained = std::make_unique<Model>(loaded.recipe, training_info(loaded.recipe));
    trained->train(false);
    language = language_model_of(loaded.recipe, *trained, at::kCPU, nullptr);
  }
  check_language_model(language);
  NextToken next(language, request.at("use_cache").get<bool>());
  results["0"] = next.begin(request.at("texts").get<std::vector<std::vector<int64_t>>>());
  const auto following = request.at("following").get<std::vector<std::vector<int64_t>>>();
  for (size_t step = 0; !following.empty() && step < following[0].size(); ++step) {
    std::vector<int64_t> tokens;
    for (const auto& row : following) tokens.push_back(row[step]);
    results[std::to_string(step + 1)] = next.go_on(tokens);
  }
  return {{"undecodable", next.why_not_kept() ? json(*next.why_not_kept()) : json()}};
}

json next_scores(const json& request, const at::Tensor& logits, std::map<std::string, at::Tensor>& results) {
  const json& given = request.at("options");
  GenerationSettings options;
  options.do_sample = given.at("do_sample").get<bool>();
  options.temperature = given.value("temperature", options.temperature);
  options.top_k = given.value("top_k", options.top_k);
  options.top_p = given.value("top_p", options.top_p);
  options.repetition_penalty = given.value("repetition_penalty", options.repetition_penalty);
  const auto text = request.at("text").get<std::vector<int64_t>>();
  std::vector<std::string> notes;
  if (request.contains("folder")) options = with_generation_config(options, request["folder"], notes);
  const auto prompt_length = request.value("prompt_length", static_cast<int64_t>(text.size()));
  const at::Tensor scores = processed_scores(logits, text, prompt_length, options);
  results["scores"] = scores;
  return {{"token", chosen_token(scores, options.do_sample, request.value("uniform", 0.0))}};
}

}  // namespace trainrun
