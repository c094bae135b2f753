#include "runner/interop/python/settings.h"

#include <nlohmann/json.hpp>

namespace trainrun::python {

void check_settings(const LoadedRecipe& loaded, SourceFile& file) {
  const Recipe& recipe = loaded.recipe;
  const Value& written = loaded.resolved;
  const auto place = [&](const std::string& section, const std::string& key) {
    const Value* own = written.find(section);
    const Value* value = own ? own->find(key) : nullptr;
    return value ? value->place() : own ? own->place() : written.place();
  };
  if (!recipe.model.checkpoint_activations.empty())
    file.note("model.checkpoint_activations changes no result, and is left out");
  if (recipe.training.max_time)
    file.refuse(place("training", "max_time"), "training.max_time",
                "an end by the clock is not written; write max_steps");
  if (recipe.training.max_tokens)
    file.refuse(place("training", "max_tokens"), "training.max_tokens",
                "an end by tokens is not written; write max_steps");
  if (recipe.training.lr_scaling)
    file.refuse(place("training", "lr_scaling"), "training.lr_scaling", "write the scaled rate as optimizer.lr");
  if (recipe.dataloader.group_by_length)
    file.refuse(place("dataloader", "group_by_length"), "dataloader.group_by_length",
                "batches by length are not written; leave it out");
  for (const auto& one : recipe.callbacks) {
    if (one.type == "EMA") continue;
    const bool only_watches = one.type == "TextSamples" || one.type == "ParameterMonitor" || one.type == "SampleLosses";
    if (only_watches) file.note(one.path + ": " + one.type + " changes no result, and is left out");
    if (!only_watches) file.refuse(one.place, one.path, "the callback " + one.type + " is not written; leave it out");
  }
  if (recipe.num_processes > 1) {
    file.note("the recipe trains in " + std::to_string(recipe.num_processes) + " processes, each with batches of " +
              std::to_string(recipe.dataloader.batch_size) + "; the program in one, with batches of " +
              std::to_string(recipe.dataloader.batch_size * recipe.num_processes));
  }
  if (!recipe.evaluation.tta.empty()) file.note("evaluation.tta: the program evaluates each image once, as it is");
  if (recipe.checkpoint.keep_best) file.note("checkpoint.keep_best: the program keeps the last weights");
}

void write_constants(const Recipe& recipe, bool has_eval, SourceFile& file) {
  const auto& training = recipe.training;
  const auto& loader = recipe.dataloader;
  file.constant("SEED", std::to_string(recipe.seed));
  if (training.num_epochs && !training.max_steps) file.constant("NUM_EPOCHS", std::to_string(*training.num_epochs));
  if (training.max_steps) file.constant("MAX_STEPS", std::to_string(*training.max_steps));
  const std::string processes = std::to_string(recipe.num_processes) + " processes";
  file.constant("BATCH_SIZE", std::to_string(loader.batch_size * recipe.num_processes),
                recipe.num_processes > 1 ? std::to_string(loader.batch_size) + " for each of " + processes : "");
  if (has_eval) file.constant("EVAL_BATCH_SIZE", std::to_string(loader.eval_batch_size.value_or(loader.batch_size)));
  if (training.gradient_accumulation_steps > 1)
    file.constant("ACCUMULATION_STEPS", std::to_string(training.gradient_accumulation_steps));
  if (training.max_grad_norm) file.constant("MAX_GRAD_NORM", nlohmann::json(*training.max_grad_norm).dump());
  if (training.max_grad_value) file.constant("MAX_GRAD_VALUE", nlohmann::json(*training.max_grad_value).dump());
  file.constant("DEVICE", "\"cuda\" if torch.cuda.is_available() else \"cpu\"");
}

}  // namespace trainrun::python
