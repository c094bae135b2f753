// Models beside the recipe's own: its `models`.
#include <ATen/CPUGeneratorImpl.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <map>
#include <mutex>

#include "registry/graph/shape_mode.h"
#include "registry/tensors/fault.h"
#include "runner/model/initial_weights.h"
#include "runner/model/model_records.h"

namespace trainrun {
namespace {

/// Random numbers go on where they were when this was made.
class KeptRandomNumbers {
 public:
  KeptRandomNumbers() : generator_(at::detail::getDefaultCPUGenerator()) {
    const std::scoped_lock lock(generator_.mutex());
    state_ = generator_.get_state();
  }
  ~KeptRandomNumbers() {
    const std::scoped_lock lock(generator_.mutex());
    generator_.set_state(state_);
  }
  KeptRandomNumbers(const KeptRandomNumbers&) = delete;
  KeptRandomNumbers& operator=(const KeptRandomNumbers&) = delete;

 private:
  at::Generator generator_;
  at::Tensor state_;
};

/// The recipe with the role in the place of its model, and nothing that is trained or measured.
Recipe recipe_of(const Recipe& recipe, const RoleSection& section) {
  Recipe own = recipe;
  own.models.entries.clear();
  own.loss.clear();
  own.metrics.clear();
  if (section.layers) {
    own.model = ModelSection();
    own.model.layers = *section.layers;
    own.model.weights = section.weights;
  }
  own.model.freeze.clear();
  own.model.unfreeze_at_epoch.reset();
  own.model.checkpoint_activations.clear();
  own.model.adapters.reset();
  return own;
}

bool names_weights(const Recipe& recipe, const Model& model) {
  const std::vector<FoundRecord> found = find_records(model.graph());
  const auto has_folder = [](const FoundRecord& one) { return !one.record->pretrained.empty(); };
  return recipe.model.weights || std::any_of(found.begin(), found.end(), has_folder);
}

/// Has the parameters of `model` be those of `owner`, which has adapters besides.
void share_weights(const Model& model, const Model& owner) {
  const NamedTensors owned = owner.parameters();
  const std::map<std::string, at::Tensor> by_name(owned.begin(), owned.end());
  for (const auto& item : model.graph().named_parameters()) {
    at::Tensor parameter = item.value();
    parameter.set_data(by_name.at(item.key()).detach());
  }
}

}  // namespace

ModelRoles::ModelRoles(const Recipe& recipe, const DatasetInfo& info, const Model& owner) {
  const KeptRandomNumbers kept;
  for (const auto& entry : recipe.models.entries) {
    const RoleSection& section = entry.second;
    const Place place = (section.layers ? *section.layers : recipe.model.layers).layers.at(0).component.place;
    const std::string path = "models." + entry.first;
    if (info.find(entry.first) || owner.graph().slot(entry.first)) {
      throw RecipeError({{place, path, "a layer or a field of the batch is called '" + entry.first + "', too"}});
    }
    Role role;
    role.name = entry.first;
    at_place(place, path, "", [&] { build(role, recipe, section, info, owner); });
    roles_.push_back(std::move(role));
  }
}

void ModelRoles::build(Role& role, const Recipe& recipe, const RoleSection& section, const DatasetInfo& info,
                       const Model& owner) {
  auto own = std::make_shared<Recipe>(recipe_of(recipe, section));
  role.shares = section.from && recipe.model.adapters;
  if (role.shares && recipe.sharding_stage() > 0) {
    throw Error(
        "with FSDP no rank has the whole model to take the adapters off; give `layers` and their weights in the place "
        "of `from`");
  }
  role.model = std::make_unique<Model>(*own, info);
  if (!role.shares && !names_weights(*own, *role.model)) {
    throw Error(section.from ? "the model begins with random weights, which a resumed run could not get back; "
                               "it needs model.weights, or a layer that is `pretrained`"
                             : "has no weights; write `weights`, or `pretrained` in its layer");
  }
  for (const auto& [name, tensor] : role.model->parameters()) at::Tensor(tensor).set_requires_grad(false);
  role.model->train(false);
  if (role.shares) share_weights(*role.model, owner);
  role.recipe = std::move(own);
}

std::optional<size_t> ModelRoles::find(const std::string& name) const {
  for (size_t i = 0; i < roles_.size(); ++i) {
    if (roles_[i].name == name) return i;
  }
  return std::nullopt;
}

at::Tensor ModelRoles::example(size_t role) const { return roles_.at(role).model->example_output(); }

at::Tensor ModelRoles::run(size_t role, const Batch& batch) {
  if (!is_loaded_) load();
  const c10::AutoGradMode no_gradients(false);
  return roles_.at(role).model->forward(batch)[0];
}

std::vector<std::string> ModelRoles::load() {
  std::vector<std::string> passed_over;
  for (const Role& role : roles_) {
    if (role.shares) continue;
    for (const std::string& line : load_initial_weights(*role.recipe, *role.model)) {
      passed_over.push_back("models." + role.name + ": " + line);
    }
  }
  is_loaded_ = true;
  return passed_over;
}

void ModelRoles::to(at::Device device, const Model& owner) {
  for (const Role& role : roles_) {
    role.model->to(device);
    if (role.shares) share_weights(*role.model, owner);
  }
}

int64_t ModelRoles::num_bytes() const {
  int64_t bytes = 0;
  for (const Role& role : roles_) {
    for (const auto& [name, tensor] : role.model->state_dict()) {
      bytes += role.shares ? 0 : static_cast<int64_t>(tensor.nbytes());
    }
  }
  return bytes;
}

std::vector<const Model*> ModelRoles::models() const {
  std::vector<const Model*> models;
  for (const Role& role : roles_) {
    if (!role.shares) models.push_back(role.model.get());
  }
  return models;
}

}  // namespace trainrun
