// Models beside the recipe's own: its `models`.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/empty_like.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <mutex>
#include <set>

#include "registry/graph/shape_mode.h"
#include "registry/tensors/fault.h"
#include "runner/model/initial_weights.h"
#include "runner/model/model_records.h"

namespace trainrun {
namespace {

/// Random numbers go on where they were when this was made. Until then a model may be drawn `from` a seed.
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
  void draw_from(int64_t seed) {
    const std::scoped_lock lock(generator_.mutex());
    generator_.set_current_seed(static_cast<uint64_t>(seed));
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

/// The parameters of `model` that `owner`, which has adapters besides, never trains, and what they are there. Those of
/// modules_to_save are not among them: as in peft, the model without its adapters has them as they were.
std::vector<std::pair<at::Tensor, at::Tensor>> untrained(const Model& model, const Model& owner) {
  const auto owned = owner.graph().named_parameters();  // by all of its names, where a weight has several
  std::vector<std::pair<at::Tensor, at::Tensor>> same;
  std::set<const at::TensorImpl*> seen;
  for (const auto& item : model.graph().named_parameters()) {
    const at::Tensor* own = owned.find(item.key());
    if (!own || own->requires_grad() || !seen.insert(item.value().unsafeGetTensorImpl()).second) continue;
    same.emplace_back(item.value(), *own);
  }
  return same;
}

/// A file of the model's weights may have more than the model without its adapters has; it was checked for the model.
void pass_over_what_is_not_there(std::optional<std::variant<std::string, WeightsSection>>& weights) {
  if (!weights) return;
  WeightsSection section;
  if (const auto* path = std::get_if<std::string>(&*weights)) section.path = *path;
  if (const auto* given = std::get_if<WeightsSection>(&*weights)) section = *given;
  section.strict = false;
  weights = std::move(section);
}

}  // namespace

ModelRoles::ModelRoles(const Recipe& recipe, const DatasetInfo& info, const Model& owner) {
  KeptRandomNumbers kept;
  for (const auto& entry : recipe.models.entries) {
    const RoleSection& section = entry.second;
    const Place place = (section.layers ? *section.layers : recipe.model.layers).layers.at(0).component.place;
    const std::string path = "models." + entry.first;
    if (info.find(entry.first) || owner.graph().slot(entry.first)) {
      throw RecipeError({{place, path, "a layer or a field of the batch is called '" + entry.first + "', too"}});
    }
    Role role;
    role.name = entry.first;
    // Weights that no file has are then the same in each process, and `from: model` begins as the model itself does.
    kept.draw_from(recipe.seed);
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
  if (role.shares) {
    role.shared = untrained(*role.model, owner);
    pass_over_what_is_not_there(own->model.weights);
  }
  share(role);
  role.recipe = std::move(own);
}

void ModelRoles::share(const Role& role) {
  for (const auto& [parameter, owned] : role.shared) at::Tensor(parameter).set_data(owned.detach());
}

NamedTensors ModelRoles::own_state(const Role& role) {
  std::set<const at::TensorImpl*> seen;
  for (const auto& [parameter, owned] : role.shared) seen.insert(parameter.unsafeGetTensorImpl());
  NamedTensors own = role.model->state_dict();
  std::erase_if(own, [&](const auto& item) { return !seen.insert(item.second.unsafeGetTensorImpl()).second; });
  return own;
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
    if (role.shares && own_state(role).empty()) continue;
    for (const auto& [parameter, owned] : role.shared) {  // the owner's are not for this file to change
      at::Tensor(parameter).set_data(at::empty_like(owned.detach()));
    }
    const std::vector<std::string> lines = load_initial_weights(*role.recipe, *role.model);
    share(role);
    if (role.shares) continue;  // the owner's lines say the same
    for (const std::string& line : lines) passed_over.push_back("models." + role.name + ": " + line);
  }
  is_loaded_ = true;
  return passed_over;
}

void ModelRoles::to(at::Device device) {
  for (const Role& role : roles_) {
    role.model->to(device);
    share(role);
  }
}

int64_t ModelRoles::num_bytes() const {
  int64_t bytes = 0;
  for (const Role& role : roles_) {
    for (const auto& [name, tensor] : own_state(role)) bytes += static_cast<int64_t>(tensor.nbytes());
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
