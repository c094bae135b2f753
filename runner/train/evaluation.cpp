#include "runner/train/evaluation.h"

#include <filesystem>

#include "registry/kinds/dataset_facts.h"
#include "registry/language/error.h"
#include "runner/data/data.h"
#include "runner/data/encoding_notes.h"
#include "runner/device/device.h"
#include "runner/model/index_checks.h"
#include "runner/model/metric_classes.h"
#include "runner/model/trained_recipe.h"
#include "runner/train/train_loop.h"

namespace trainrun {

using nlohmann::json;

namespace {

/// The checkpoint; where it was chosen in a run that goes on, and that run has removed it since, the one that is chosen
/// now. `read`: which it was.
CheckpointContent load_chosen(const TrainedModel& trained, std::string& read) {
  read = trained.checkpoint;
  for (int choice = 1;; ++choice) {
    try {
      return CheckpointStore::load(read);
    } catch (const RemovedCheckpoint&) {
      if (trained.run.empty() || choice == CheckpointStore::kMostChoices) throw;
    }
    read = find_trained(trained.run).checkpoint;
  }
}

std::vector<std::string> callback_parts(const Recipe& recipe) {
  std::vector<std::string> names;
  for (size_t i = 0; i < recipe.callbacks.size(); ++i) names.push_back(callback_part(i));
  return names;
}

json learnt_in(const CheckpointContent& checkpoint) {
  const Snapshots saved = parts_of(checkpoint, {"learnt"});
  return saved.contains("learnt") ? saved.at("learnt").values : json::object();
}

Component<MetricKind> metric_of(const ExtraMetric& extra, const Catalog& catalog) {
  std::vector<Problem> problems;
  Reader reader(catalog, problems);
  auto metric = Codec<Component<MetricKind>>::read(Value::scalar(extra.type, /*quoted=*/true, {}), reader);
  if (!metric) throw RecipeError(problems);
  metric->common.name = extra.name;
  metric->common.inputs = extra.inputs;
  return std::move(*metric);
}

bool has_whole_checkpoint(const std::filesystem::path& run) {
  try {
    return CheckpointStore::find_newest(run / "checkpoints", [](const std::string&) {}).has_value();
  } catch (const CheckpointError&) {  // it has only damaged ones
    return false;
  }
}

/// "; runs/a-3 has one": of the runs whose folders were named after this one's, the newest that has a checkpoint; or "".
std::string later_run_text(const std::string& path) {
  constexpr int kMost = 100;
  std::string found;
  for (int number = 2; number < kMost; ++number) {
    const std::filesystem::path other = path + "-" + std::to_string(number);
    if (!std::filesystem::exists(other)) break;
    if (has_whole_checkpoint(other)) found = other.string();
  }
  return found.empty() ? "" : "; " + found + " has one";
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
  if (fs::exists(path / "fold-0")) {
    throw Error(path.string() + " holds a run for each fold; name one of them: " + (path / "fold-0").string());
  }
  const fs::path checkpoints = path / "checkpoints";
  if (fs::exists(checkpoints / "best")) return {path / "recipe.yaml", checkpoints / "best", path};
  std::vector<std::string> notes;
  const auto newest =
      CheckpointStore::find_newest(checkpoints, [&](const std::string& note) { notes.push_back(note); });
  if (!newest) {
    throw Error(path.string() + " has no complete checkpoint: it stopped before one was saved" +
                later_run_text(path.string()));
  }
  return {path / "recipe.yaml", *newest, path, std::move(notes)};
}

TrainedRun::TrainedRun(const TrainedModel& trained, const std::vector<std::string>& overrides, Catalog& catalog,
                       const ExtraMetrics& extra_metrics)
    : recipe_path_(trained.recipe) {
  prepare_device(trained.recipe, overrides);
  std::optional<CheckpointContent> checkpoint = load_chosen(trained, checkpoint_);
  const json learnt = learnt_in(*checkpoint);
  loaded_ = load_trained_recipe(trained.recipe, overrides, catalog, learnt);
  Recipe& recipe = loaded_.recipe;
  notes_ = trained.notes;
  notes_.insert(notes_.end(), loaded_.kept_notes.begin(), loaded_.kept_notes.end());
  contract_ = DataContract::from_json(learnt, recipe, notes_);
  for (const ExtraMetric& extra : extra_metrics ? extra_metrics(recipe) : std::vector<ExtraMetric>()) {
    recipe.metrics.push_back(metric_of(extra, catalog));
  }
  saved_ = parts_of(*checkpoint, callback_parts(recipe));
  checkpoint.reset();                        // with the optimizer's tensors
  device_ = choose_device({recipe.device});  // of the processes that trained it one is left
  use_device(device_, recipe.tf32);
  model_ = std::make_unique<Model>(recipe, recipe.dataset.eval ? evaluation_info(recipe) : training_info(recipe));
  model_->load_state_dict(saved_.at("model").tensors, checkpoint_);
  if (!device_.is_cpu()) model_->to(device_);
  model_->set_units(contract_.scalings());
  step_ = saved_.at(kProgressPart).values.at("step").get<int64_t>();
  parallel_ = std::make_unique<LoneModel>(model_->parameters());
  callbacks_ =
      std::make_unique<Callbacks>(recipe, std::make_unique<ModelRun>(*model_, *parallel_, group_, recipe, step_));
  for (size_t i = 0; i < recipe.callbacks.size(); ++i) {
    const auto own = saved_.find(callback_part(i));
    callbacks_->load(i, own == saved_.end() ? Snapshot() : own->second);
  }
}

EvaluatedSets evaluate_trained(TrainedRun& run) {
  const Recipe& recipe = run.recipe();
  if (!recipe.dataset.eval) throw Error("the recipe of this run has no dataset.eval to evaluate on");
  std::vector<std::unique_ptr<Dataset>> data;
  std::vector<DatasetInfo> infos;
  std::vector<std::pair<std::string, const Dataset*>> named;
  for (const EvalSets::One& set : recipe.dataset.eval->sets) {
    data.push_back(open_data(set.data, recipe));
    run.contract().read(*data.back(), set.path());
    infos.push_back(data.back()->info());
    named.emplace_back(set.path(), data.back().get());
    check_indices(recipe, run.model().graph(), *data.back(), evaluation_info(recipe, data.size() - 1));
  }
  run.add_notes(notes_of_all(named));
  std::vector<Problem> of_encodings;
  for (const EvalSets::One& set : recipe.dataset.eval->sets) {
    add_encoding_notes(set.data.written, set.path(), of_encodings);
  }
  for (const Problem& note : of_encodings) run.add_notes({note.to_string()});
  DataTransforms transforms(recipe, nullptr, infos);
  transforms.set_learnt(run.contract().transforms);
  const EvaluationScope scope(run.callbacks());
  EvaluationControl control = {run.group()};
  control.scope = &scope;
  const auto metrics = run.model().build_metrics(recipe);
  name_classes(metrics, recipe, evaluation_info(recipe),
               [&](const std::string& field) { return run.contract().class_names(field); });
  EvaluatedSets evaluated;
  for (size_t i = 0; i < data.size(); ++i) {
    const DataLoader loader(*data[i], transforms.evaluation(i), loader_options(recipe, data[i].get(), false),
                            run.device());
    control.prefix = recipe.dataset.eval->sets[i].prefix();
    const Figures own = *evaluate(recipe, run.model(), loader, metrics, control);
    evaluated.figures.insert(evaluated.figures.end(), own.begin(), own.end());
    evaluated.samples.push_back(data[i]->size());
    const std::vector<std::string> names = run.contract().class_names(infos[i].target);
    evaluated.class_names[control.prefix] = names.empty() ? data[i]->facts().field(infos[i].target).class_names : names;
  }
  return evaluated;
}

}  // namespace trainrun
