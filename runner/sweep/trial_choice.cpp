// Which trials a sweep makes, and which of them begin with another one's steps.
#include <algorithm>
#include <filesystem>
#include <set>

#include "registry/language/error.h"
#include "registry/language/text_forms.h"
#include "runner/recipe/recipe_source.h"
#include "runner/sweep/sampler.h"
#include "runner/sweep/sweep.h"

namespace trainrun {
namespace {

constexpr int64_t kMostChecked = 256;   // points of the space, before anything starts
constexpr int64_t kMostPlanned = 2000;  // trials whose recipes are compared for steps that they share

/// A copy, for plugins to be loaded into.
LoadedRecipe load_point(const std::string& recipe, const SearchSpace& space, const Point& point,
                        const Catalog& catalog) {
  Catalog own = catalog;
  return load_recipe(recipe, space.overrides(point), own);
}

}  // namespace

LoadedRecipe check_recipe(const std::string& recipe, const SearchSpace& space, const Catalog& catalog) {
  const std::vector<Point> points = space.points_to_check(kMostChecked);
  LoadedRecipe first = load_point(recipe, space, points[0], catalog);
  for (size_t i = 1; i < points.size(); ++i) load_point(recipe, space, points[i], catalog);
  if (first.recipe.dataset.all_folds()) {
    throw Error("a sweep trains one fold; write dataset.fold.index=0, or sweep over dataset.fold.index=0.." +
                std::to_string(*first.recipe.dataset.all_folds() - 1));
  }
  return first;
}

/// The values of a point; of tpe they follow from what is known when it is chosen.
Point Sweep::point_of(int64_t number) const {
  if (options_.facts.method == "grid") return options_.space.grid_point(number);
  TrialRandom random(options_.facts.seed, number);
  if (options_.facts.method == "random") return random_point(options_.space, random);
  return tpe_point(options_.space, observations_before(number), random);
}

/// Of as many trials as run at once, none knows the others' figures, whichever ends first: so that the same sweep chooses
/// the same points each time.
std::vector<Observation> Sweep::observations_before(int64_t number) const {
  std::vector<Observation> observations;
  for (const auto& [before, id] : state_.trial_of_number()) {
    const SweepTrial& trial = state_.trial(id);
    if (before >= number || trial.state == SweepTrial::State::kFailed) continue;
    Observation one;
    one.number = before;
    one.point = points_.at(before);
    const auto figure = trial.newest_figure();
    if (figure && before <= number - options_.jobs) one.loss = options_.facts.loss_of(*figure);
    one.is_complete = trial.state == SweepTrial::State::kFinished;
    one.step = trial.step;
    observations.push_back(std::move(one));
  }
  return observations;
}

bool Sweep::may_choose(int64_t number) const {
  if (options_.facts.method != "tpe") return true;
  return std::ranges::all_of(state_.trial_of_number(), [&](const auto& one) {
    const SweepTrial& trial = state_.trial(one.second);
    const bool is_told = trial.newest_figure() || trial.state == SweepTrial::State::kFailed ||
                         trial.state == SweepTrial::State::kFinished;
    return one.first > number - options_.jobs || is_told;
  });
}

LoadedRecipe Sweep::load(int64_t number, const std::string& folder) const {
  std::vector<std::string> overrides = options_.space.overrides(points_.at(number));
  if (!folder.empty()) overrides.push_back(output_override(folder));
  Catalog own = catalog_;
  return load_recipe(options_.recipe, overrides, own);
}

Value Sweep::resolve(int64_t number) const {
  ResolvedRecipe resolved = resolve_recipe(options_.recipe, options_.space.overrides(points_.at(number)));
  if (!resolved.problems.empty()) throw RecipeError(resolved.problems);
  return std::move(resolved.value);
}

void Sweep::plan_sharing() {
  for (const auto& [number, id] : state_.trial_of_number()) {
    const SweepTrial& trial = state_.trial(id);
    Point point(options_.space.dimensions.size());
    for (size_t i = 0; i < point.size(); ++i) {
      const Dimension& dimension = options_.space.dimensions[i];
      const std::string& text = trial.values.at(i).second;
      const auto choice = std::ranges::find(dimension.choices, text) - dimension.choices.begin();
      point[i] = dimension.kind == Dimension::Kind::kChoices ? static_cast<double>(choice)
                                                             : parse_number(text).value_or(dimension.low);
    }
    points_[number] = std::move(point);
  }
  const int64_t num_trials = options_.facts.num_trials;
  if (!options_.shares_steps || options_.facts.method == "tpe") return;
  if (num_trials > kMostPlanned) {
    options_.tell("more than " + std::to_string(kMostPlanned) + " trials: each is trained from its beginning");
    return;
  }
  std::vector<Value> resolved;
  std::vector<int64_t> numbers;  // of points that are no earlier one again
  std::set<std::string> digests;
  for (int64_t number = 0; number < num_trials; ++number) {
    points_[number] = point_of(number);
    Value own = resolve(number);
    if (!digests.insert(digest_of(own)).second) continue;
    resolved.push_back(std::move(own));
    numbers.push_back(number);
  }
  const int64_t most = options_.facts.halving ? options_.facts.halving->min_steps : INT64_MAX;
  const ForkPlan plan = plan_forks(resolved, [&](size_t i) { return load(numbers[i], ""); }, most);
  for (const std::string& note : plan.notes) options_.tell(note);
  for (size_t i = 0; i < plan.forks.size(); ++i) {
    const auto& fork = plan.forks[i];
    if (fork) forks_[numbers[i]] = {numbers[fork->parent], fork->step};
  }
  if (forks_.empty()) return;
  int64_t sum = 0;
  for (const auto& [number, fork] : forks_) sum += fork.step;
  options_.tell(counted(static_cast<int64_t>(forks_.size()), "trial begins", "trials begin") +
                " with the first steps of another one, which are equal; " + counted(sum, "step is", "steps are") +
                " not trained again");
}

/// The folder's name is free, or it holds this very run, of a sweep whose journal is lost.
int64_t Sweep::unused_id(const Value& resolved) const {
  int64_t id = state_.next_id();
  while (std::filesystem::exists(folder_of(id)) && !is_folder_of(folder_of(id), resolved)) ++id;
  return id;
}

/// After all before it, so that folders have the same names whatever ends first.
const SweepTrial& Sweep::choose(int64_t number) {
  for (int64_t before = 0; before < number; ++before) {
    if (!state_.trial_of_number().contains(before)) choose(before);
  }
  if (!points_.contains(number)) points_[number] = point_of(number);
  const Value resolved = resolve(number);
  const std::string digest = digest_of(resolved);
  const SweepTrial* known = state_.find(digest);
  if (!known) {
    SweepTrial trial;
    trial.id = unused_id(resolved);
    trial.digest = digest;
    for (size_t i = 0; i < options_.space.dimensions.size(); ++i) {
      const Dimension& dimension = options_.space.dimensions[i];
      trial.values.emplace_back(dimension.key, dimension.text_of(points_.at(number)[i]));
    }
    record(sweep_events::trial(trial));
    known = state_.find(digest);
  }
  const int64_t id = known->id;
  record(sweep_events::number(number, id));
  return state_.trial(id);
}

/// The first point that is this trial.
std::optional<int64_t> Sweep::number_of(int64_t trial) const {
  for (const auto& [number, id] : state_.trial_of_number()) {
    if (id == trial) return number;
  }
  return std::nullopt;
}

/// Whether its first steps are yet to come, by another trial.
bool Sweep::waits_for_parent(const SweepTrial& trial) const {
  if (trial.step > 0 || forks_.empty()) return false;
  const auto fork = forks_.find(*number_of(trial.id));
  if (fork == forks_.end()) return false;
  const SweepTrial& first = state_.trial(state_.trial_of_number().at(fork->second.parent));
  const bool is_to_come = first.state == SweepTrial::State::kWaiting && first.step < fork->second.step;
  return is_to_come && !std::filesystem::exists(folder_of(trial.id));
}

/// Those that begin with the steps after which `parent` has stopped get their folders.
void Sweep::fork_from(const SweepTrial& parent) {
  const int64_t parent_id = parent.id, parent_number = *number_of(parent.id);
  const int64_t step = progress_of(parent_id).step;
  for (const auto& [number, fork] : forks_) {
    if (fork.parent != parent_number || fork.step != step) continue;
    const auto chosen = state_.trial_of_number().find(number);
    const int64_t child = chosen == state_.trial_of_number().end() ? choose(number).id : chosen->second;
    const std::string folder = folder_of(child);
    if (std::filesystem::exists(folder)) continue;
    fork_trial({folder_of(parent_id), parent_id, step}, folder, load(number, folder));
    record(sweep_events::forked(child, parent_id, step));
  }
  record(sweep_events::stopped(parent_id, step));
}

}  // namespace trainrun
