#include "runner/train/callbacks.h"

#include <spdlog/spdlog.h>

#include <algorithm>

#include "registry/kinds/build.h"
#include "runner/train/test_time_augmentation.h"

namespace trainrun {

NamedTensors ModelRun::parameters() const { return has_pieces() ? parallel_.parameters() : model_.parameters(); }

void ModelRun::estimate_batch_norms() {
  if (!training_.estimate_batch_norms)
    throw Error("the statistics of batch normalizations can only be estimated again while a job trains");
  training_.estimate_batch_norms();
}

NamedTensors ModelRun::buffers() const {
  NamedTensors buffers;
  for (const auto& item : model_.graph().named_buffers()) {
    if (item.value().defined()) buffers.emplace_back(item.key(), item.value());
  }
  return buffers;
}

Callbacks::Callbacks(const Recipe& recipe, std::unique_ptr<Run> run) : run_(std::move(run)) {
  if (!recipe.evaluation.tta.empty()) {
    add_own({{}, "evaluation.tta", "tta"}, test_time_augmentation(recipe.evaluation.tta));
  }
  for (const Component<CallbackKind>& callback : recipe.callbacks) {
    items_.push_back({name_of(callback), build_at_place(callback, {})});
    const auto restores = [](const Item& item) { return item.callback->restores(); };
    if (std::count_if(items_.begin(), items_.end(), restores) < 2 || !restores(items_.back())) continue;
    throw RecipeError({{callback.place, callback.path, "another callback restores the best weights; one of them may"}});
  }
}

void Callbacks::add_own(ComponentName name, std::unique_ptr<Callback> callback) {
  own_.push_back({std::move(name), std::move(callback)});
}

template <class Body>
void Callbacks::for_each(const Body& body) {
  for (std::vector<Item>* items : {&own_, &items_}) {
    for (const Item& item : *items) as_component(item.name, {}, [&] { body(*item.callback); });
  }
}

void Callbacks::use(std::unique_ptr<TextSource> source) {
  texts_ = std::move(source);
  for_each([&](Callback& callback) {
    if (auto* writer = dynamic_cast<WritesTexts*>(&callback)) writer->use(*texts_);
  });
}

void Callbacks::use(const std::function<SampleLossBook&()>& book) {
  for_each([&](Callback& callback) {
    if (auto* keeper = dynamic_cast<KeepsSampleLosses*>(&callback)) keeper->use(book());
  });
}

void Callbacks::before_forward(Batch& batch) {
  for_each([&](Callback& callback) { callback.before_forward(*run_, batch); });
}

void Callbacks::before_update(bool is_logged) {
  for_each([&](Callback& callback) { callback.before_update(*run_, is_logged); });
}

/// The runner's own look at figures alone.
bool Callbacks::read_gradients(bool is_logged) const {
  return std::any_of(items_.begin(), items_.end(),
                     [&](const Item& item) { return item.callback->reads_gradients(is_logged); });
}

void Callbacks::after_step(const StepResult& result) {
  for_each([&](Callback& callback) { callback.after_step(*run_, result); });
}

void Callbacks::add_figures(Figures& figures) {
  for_each([&](Callback& callback) { callback.add_figures(*run_, figures); });
}

bool Callbacks::after_training() {
  bool has_changed = false;
  for_each([&](Callback& callback) { has_changed = callback.after_training(*run_) || has_changed; });
  return has_changed;
}

Verdict Callbacks::after_evaluation(const Figures& figures) {
  Verdict all;
  for_each([&](Callback& callback) {
    const Verdict own = callback.after_evaluation(*run_, figures);
    all.is_best = all.is_best || own.is_best;
    if (all.stop.empty()) all.stop = own.stop;
    all.keep = all.keep || own.keep;
  });
  if (all.keep) kept_.keep(*run_, all_of_recipe());
  return all;
}

KeptWeights::Callbacks Callbacks::all_of_recipe() const {
  KeptWeights::Callbacks callbacks;
  for (const Item& item : items_) callbacks.emplace_back(*item.callback);
  return callbacks;
}

bool Callbacks::restores_kept() const {
  const auto restores = [](const Item& item) { return item.callback->restores(); };
  return std::any_of(items_.begin(), items_.end(), restores) && kept_.is_of_another(run_->step());
}

bool Callbacks::restore_kept() {
  for (const Item& item : items_) {
    if (!item.callback->restores()) continue;
    const bool restored = as_component(item.name, {}, [&] { return kept_.restore(*run_, all_of_recipe()); });
    if (restored) spdlog::info("{}: the run ends with the weights of step {}", item.name.type, kept_.step());
    return restored;
  }
  return false;
}

void Callbacks::load_kept(const Snapshot& snapshot) { kept_.load(*run_, all_of_recipe(), snapshot); }

std::vector<std::unique_ptr<Scope>> Callbacks::around_evaluation() {
  std::vector<std::unique_ptr<Scope>> scopes;
  for_each([&](Callback& callback) {
    if (auto scope = callback.around_evaluation(*run_)) scopes.push_back(std::move(scope));
  });
  return scopes;
}

Snapshot Callbacks::save(size_t i) {
  Snapshot snapshot;
  as_component(items_[i].name, {}, [&] { items_[i].callback->save(*run_, snapshot); });
  return snapshot;
}

void Callbacks::load(size_t i, const Snapshot& snapshot) {
  as_component(items_[i].name, {}, [&] { items_[i].callback->load(*run_, snapshot); });
}

std::string callback_part(size_t i) { return "callbacks[" + std::to_string(i) + "]"; }

void EvaluationScope::leave() {
  while (!scopes_.empty()) scopes_.pop_back();  // the last one first
}

Tensors EvaluationScope::predict(const Batch& batch, const Predictor::Forward& forward) const {
  Predictor::Forward pass = forward;
  for (const auto& scope : scopes_) {
    Predictor* predictor = scope->predictor();
    if (!predictor) continue;
    pass = [predictor, inner = pass](const Batch& given) { return predictor->predict(given, inner); };
  }
  return pass(batch);
}

}  // namespace trainrun
