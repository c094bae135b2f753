#include "runner/train/evaluation.h"

#include <filesystem>

#include "runner/device/device.h"
#include "runner/model/index_checks.h"
#include "runner/train/train_loop.h"

namespace trainrun {

namespace {

/// What an evaluation needs of a checkpoint.
Snapshots load_parts(const std::string& checkpoint, const Recipe& recipe) {
  std::vector<std::string> names = {"learnt"};
  for (size_t i = 0; i < recipe.callbacks.size(); ++i) names.push_back(callback_part(i));
  return parts_of(CheckpointStore::load(checkpoint), names);
}

}  // namespace

TrainedModel find_trained(const std::string& run_or_checkpoint) {
  namespace fs = std::filesystem;
  const fs::path path(run_or_checkpoint);
  if (fs::exists(path / "model.safetensors")) {
    const fs::path run = fs::weakly_canonical(path).parent_path().parent_path();
    if (!fs::exists(run / "recipe.yaml")) {
      throw Error(path.string() + " lies in no run's folder: there is no " + (run / "recipe.yaml").string());
    }
    return {run / "recipe.yaml", path};
  }
  if (!fs::exists(path / "recipe.yaml")) {
    throw Error(path.string() + " is neither a run's folder (recipe.yaml) nor a checkpoint's (model.safetensors)");
  }
  const fs::path checkpoints = path / "checkpoints";
  if (fs::exists(checkpoints / "best")) return {path / "recipe.yaml", checkpoints / "best"};
  const auto newest = CheckpointStore::find_newest(checkpoints, [](const std::string&) {});
  if (!newest) throw Error(path.string() + " holds no whole checkpoint");
  return {path / "recipe.yaml", *newest};
}

std::vector<std::pair<std::string, double>> evaluate_trained(const TrainedModel& trained,
                                                             const std::vector<std::string>& overrides,
                                                             Catalog& catalog) {
  prepare_device(trained.recipe, overrides);
  const LoadedRecipe loaded = load_recipe(trained.recipe, overrides, catalog);
  const Recipe& recipe = loaded.recipe;
  if (!recipe.dataset.eval) throw Error(trained.recipe + " has no dataset.eval to evaluate on");
  const Snapshots saved = load_parts(trained.checkpoint, recipe);
  const nlohmann::json learnt = saved.contains("learnt") ? saved.at("learnt").values : nlohmann::json::object();
  const auto data = open_data(*recipe.dataset.eval, recipe);
  share_learnt(*data, learnt.value("dataset", nlohmann::json()));
  const DatasetInfo info = data->info();
  DataTransforms transforms(recipe, nullptr, &info);
  transforms.set_learnt(learnt.value("transforms", nlohmann::json()));
  const at::Device device = choose_device({recipe.device});  // of the processes that trained it one is left
  use_device(device, recipe.tf32);
  const DataLoader loader(*data, transforms.evaluation(), loader_options(recipe, data.get(), false), device);
  Model model(recipe, evaluation_info(recipe));
  model.load_state_dict(saved.at("model").tensors, trained.checkpoint);
  check_indices(recipe, model.graph(), *data, evaluation_info(recipe));
  if (!device.is_cpu()) model.to(device);
  const auto step = saved.at(kProgressPart).values.at("step").get<int64_t>();
  Callbacks callbacks(recipe, std::make_unique<ModelRun>(model, nullptr, nullptr, step));
  for (size_t i = 0; i < recipe.callbacks.size(); ++i) {
    const auto own = saved.find(callback_part(i));
    callbacks.load(i, own == saved.end() ? Snapshot() : own->second);
  }
  const EvaluationScope scope(callbacks);
  EvaluationControl control;
  control.scope = &scope;
  return *evaluate(recipe, model, loader, model.build_metrics(recipe), control);
}

}  // namespace trainrun
