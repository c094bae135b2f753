// Plans a recipe's model: its shapes, and whether every set of data fits it.
#include <algorithm>

#include "registry/graph/shape_mode.h"
#include "runner/model/data_checks.h"
#include "runner/model/index_checks.h"
#include "runner/model/model.h"

namespace trainrun {
namespace {

/// Sizes that follow from the data must be the same for training and evaluation: there is one set of weights.
void check_same_state(const Component<DatasetKind>& dataset, const NamedTensors& trained,
                      const NamedTensors& evaluated) {
  for (size_t i = 0; i < std::min(trained.size(), evaluated.size()); ++i) {
    const at::Tensor& own = trained[i].second;
    const at::Tensor& other = evaluated[i].second;
    if (own.sizes() == other.sizes()) continue;
    throw RecipeError({{dataset.place, dataset.path,
                        "its batches do not fit the model that dataset.train gives: " + trained[i].first +
                            " would be " + at::str(other.sizes()) + ", but is " + at::str(own.sizes())}});
  }
}

/// Throws RecipeError where the batches of `dataset`, whose fields are `evaluated`, do not fit the model, which was made
/// for those of `info`.
void check_evaluated(const Recipe& recipe, const Model& model, const DatasetInfo& info, const DatasetInfo& evaluated,
                     const Component<DatasetKind>& dataset) {
  check_known_indices(recipe, model.graph(), evaluated);
  for (const FieldInfo& field : info.fields) {
    const FieldInfo* other = evaluated.find(field.name);
    const bool is_label = field.name == info.target;  // transforms of training may make it soft
    if (!other || (!is_label && (other->dtype != field.dtype || other->shape.size() != field.shape.size()))) {
      throw RecipeError({{dataset.place, dataset.path,
                          "its batches have no field '" + field.name + "' like those of dataset.train"}});
    }
  }
  check_same_state(dataset, model.state_dict(), Model(recipe, evaluated).state_dict());
}

}  // namespace

std::unique_ptr<Model> plan_model(const Recipe& recipe) {
  const DatasetInfo info = training_info(recipe);
  std::vector<DatasetInfo> evaluated;  // before the shape mode, in which no file can be looked into
  for (size_t i = 0; recipe.dataset.eval && i < recipe.dataset.eval->sets.size(); ++i) {
    evaluated.push_back(evaluation_info(recipe, i));
  }
  const ShapeMode shapes;
  auto model = std::make_unique<Model>(recipe, info, evaluated.empty() ? DatasetInfo() : evaluated[0]);
  check_known_indices(recipe, model->graph(), info);
  check_tokens(recipe, info);
  if (info.num_samples) check_batch_norms(recipe, model->graph(), *info.num_samples, recipe.num_processes);
  for (size_t i = 0; i < evaluated.size(); ++i) {
    check_evaluated(recipe, *model, info, evaluated[i], recipe.dataset.eval->sets[i].data);
  }
  return model;
}

}  // namespace trainrun
