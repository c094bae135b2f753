#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "registry/components/transforms/scaling.h"
#include "runner/data/data_loader.h"
#include "runner/recipe/recipe.h"

namespace trainrun {

/// Builds and opens a data set of the recipe. It has not learnt yet.
std::unique_ptr<Dataset> open_data(const Component<DatasetKind>& dataset, const Recipe& recipe);
/// Has `data` read as what was learnt (Dataset::learnt) from the training data says; where that is null, it learns from
/// itself.
void share_learnt(Dataset& data, const nlohmann::json& learnt);

/// What a user should know of sets of data, which are open, each given with its name: "dataset.train: …". What several
/// of them say alike, as parts of one folder do, is said once: "dataset.train, dataset.eval: …".
std::vector<std::string> notes_of_all(const std::vector<std::pair<std::string, const Dataset*>>& sets);

/// The transforms of both splits, those in common made once.
class DataTransforms {
 public:
  /// `train`, `eval`: fields as the data sets give them, of each set of evaluation data; null or empty where there is
  /// none, or its transforms are not needed.
  DataTransforms(const Recipe& recipe, const DatasetInfo* train, const std::vector<DatasetInfo>& eval);

  /// Those that learn see the training samples, as the transforms before them leave them; in order.
  void learn(const Recipe& recipe, const Dataset& train);
  /// What they learnt, as checkpoints keep it; null: none learns.
  nlohmann::json learnt() const;
  /// How those of training scale the numbers of `field`, once they have learnt, all together; nothing: not at all, or in
  /// a way that no scaling says.
  std::optional<Scaling> scaling(const FieldInfo& field) const;
  /// Instead of `learn`. Throws DataError where `state` is of other transforms.
  void set_learnt(const nlohmann::json& state);

  DataLoader::Transforms training() const { return {all(train_)}; }
  DataLoader::Transforms evaluation(size_t set = 0) const { return {all(eval_[set])}; }

 private:
  using List = std::vector<std::shared_ptr<Transform>>;
  DataLoader::Transforms all(const List& first) const;
  void learn(const Recipe& recipe, const Dataset& train, const List& first);
  static void take_back(const List& list, const char* name, const nlohmann::json& state);

  List train_;
  std::vector<List> eval_;  // of each set; there is at least one
  List common_;             // after either
};

/// How many samples a batch has, and in what order they come. `data` is open, or null where only counts are wanted.
/// For the samples of one of several processes.
DataLoaderOptions loader_options(const Recipe& recipe, const Dataset* data, bool training, int64_t rank = 0,
                                 int64_t world_size = 1);

}  // namespace trainrun
