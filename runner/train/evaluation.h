#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "registry/catalog.h"
#include "runner/data/data_contract.h"
#include "runner/distributed/parallel_model.h"
#include "runner/distributed/process_group.h"
#include "runner/model/model.h"
#include "runner/model/recipe_loader.h"
#include "runner/run/snapshots.h"
#include "runner/train/callbacks.h"

namespace trainrun {

/// What a run left, or one checkpoint of it.
struct TrainedModel {
  std::string recipe;                   // RUN/recipe.yaml
  std::string checkpoint;               // RUN/checkpoints/NAME
  std::string run = {};                 // in which it was chosen; "" where the user named it
  std::vector<std::string> notes = {};  // the damaged checkpoints that were passed over
};

/// Finds recipe and checkpoint of a run's folder (its best checkpoint, else its newest whole one) or of a checkpoint's
/// folder. Throws Error where neither is there.
TrainedModel find_trained(const std::string& run_or_checkpoint);

/// A metric of type `type`, without parameters, that a recipe's metrics get besides.
struct ExtraMetric {
  std::string type;
  std::string name;  // of its figures
  Names inputs = {};
};
using ExtraMetrics = std::function<std::vector<ExtraMetric>(const Recipe&)>;
/// Figures by name, and the names of the classes of each set by its prefix ("eval", "eval/clean"), where they have some.
struct EvaluatedSets {
  Figures figures;
  std::map<std::string, std::vector<std::string>> class_names;
  std::vector<int64_t> samples;  // of each set
};

/// A trained model with what its run knows, ready for forward passes on the device that its recipe chooses.
class TrainedRun {
 public:
  /// `extra_metrics`: asked once the recipe is read; null: none. Throws what loading and they throw.
  TrainedRun(const TrainedModel& trained, const std::vector<std::string>& overrides, Catalog& catalog,
             const ExtraMetrics& extra_metrics = nullptr);

  TrainedRun(const TrainedRun&) = delete;
  TrainedRun& operator=(const TrainedRun&) = delete;

  const Recipe& recipe() const { return loaded_.recipe; }
  at::Device device() const { return device_; }
  /// Which was read: a newer one, where the run goes on and removed the one that had been found.
  const std::string& checkpoint() const { return checkpoint_; }
  const std::string& recipe_path() const { return recipe_path_; }
  /// What the checkpoint's state.json says: counters, the last figures of an evaluation, the data, versions.
  const nlohmann::json& state() const { return saved_.at(kProgressPart).values; }
  Model& model() { return *model_; }
  Callbacks& callbacks() { return *callbacks_; }
  /// Of this process alone.
  ProcessGroup& group() { return group_; }
  /// What the model knows of its training data, by which all other data are read.
  const DataContract& contract() const { return contract_; }
  /// What a user should know of the data that were read so far.
  const std::vector<std::string>& notes() const { return notes_; }
  void add_notes(const std::vector<std::string>& notes) { notes_.insert(notes_.end(), notes.begin(), notes.end()); }

 private:
  LoadedRecipe loaded_;
  std::string checkpoint_;
  std::string recipe_path_;
  Snapshots saved_;
  DataContract contract_;
  std::vector<std::string> notes_;
  at::Device device_ = at::kCPU;
  int64_t step_ = 0;
  std::unique_ptr<Model> model_;
  ProcessGroup group_;
  std::unique_ptr<ParallelModel> parallel_;
  std::unique_ptr<Callbacks> callbacks_;
};

/// Loss and metrics over all sets of evaluation data of its recipe. Throws Error where there are none.
EvaluatedSets evaluate_trained(TrainedRun& run);

}  // namespace trainrun
