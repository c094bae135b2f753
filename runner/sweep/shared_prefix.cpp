#include "runner/sweep/shared_prefix.h"

#include <algorithm>
#include <array>
#include <bit>
#include <map>
#include <memory>

#include "registry/graph/shape_mode.h"
#include "registry/kinds/build.h"
#include "runner/base/arithmetic.h"
#include "runner/data/data.h"
#include "runner/model/model.h"

namespace trainrun {
namespace {

/// Callbacks that look at nothing that comes after the step at which they are called.
constexpr std::array kBlindToLength = {"EMA", "SWA", "EarlyStopping", "ParameterMonitor", "TextSamples"};
constexpr int64_t kFewestShared = 8;             // steps: of fewer, stopping and starting again costs more
constexpr size_t kMostTimesRates = 500'000'000;  // trials times steps that are compared

/// The recipe without what may differ between trials that share steps.
std::string common_text(const Value& resolved) {
  Value own = resolved;
  for (const char* key : {"name", "output_dir", "scheduler"}) own.erase(key);
  if (Value* training = own.find("training")) {
    for (const char* key : {"num_epochs", "max_steps"}) training->erase(key);
  }
  return resolved_text(own);
}

/// Why runs of this recipe cannot begin with what another one saved; "" if they can.
std::string why_not_forked(const Recipe& recipe) {
  if (!recipe.checkpoint.every) return "checkpoint.every is null: nothing is saved that another trial could begin with";
  if (recipe.checkpoint.resume != "auto") return "checkpoint.resume is " + recipe.checkpoint.resume;
  if (recipe.training.max_time) return "training.max_time ends each of them by the clock";
  if (recipe.num_machines > 1) return "several machines train each of them";
  return "";
}

/// The rates of one trial, step by step.
class Rates {
 public:
  Rates(const Recipe& recipe, const std::vector<GroupRates>& base, int64_t steps_per_epoch) : now_(base) {
    const int64_t by_epochs =
        recipe.training.num_epochs ? saturating_product(*recipe.training.num_epochs, steps_per_epoch) : INT64_MAX;
    total_ = std::min(by_epochs, recipe.training.max_steps.value_or(INT64_MAX));
    if (!recipe.scheduler) return;
    unit_ = recipe.scheduler->common.interval == Interval::kEpoch ? steps_per_epoch : 1;
    scheduler_ = build_at_place(*recipe.scheduler, SchedulerInputs{base, ceil_divide(total_, unit_)});
  }

  int64_t total() const { return total_; }
  /// Whether they follow from the step alone.
  bool are_known() const { return !scheduler_ || (scheduler_->monitor().empty() && scheduler_->state().is_null()); }

  /// What is set for the step that follows `step` finished ones, bit for bit.
  std::vector<uint64_t> bits_at(int64_t step) {
    if (scheduler_) scheduler_->set(step / unit_, now_);
    std::vector<uint64_t> bits;
    for (const GroupRates& group : now_) {
      bits.push_back(std::bit_cast<uint64_t>(group.lr));
      bits.push_back(group.momentum ? std::bit_cast<uint64_t>(*group.momentum) : 0);
    }
    return bits;
  }

 private:
  std::vector<GroupRates> now_;
  std::unique_ptr<Scheduler> scheduler_;
  int64_t total_ = 0;
  int64_t unit_ = 1;
};

std::vector<GroupRates> base_rates(const Recipe& recipe) {
  const auto model = plan_model(recipe);
  const OptimizerInputs inputs = group_parameters(recipe.optimizer, model->parameters(), model->lr_scales(recipe));
  std::vector<GroupRates> base;
  {
    const ShapeMode shapes;
    base = build_at_place(recipe.optimizer, inputs)->initial_rates();
  }
  for (GroupRates& group : base) group.lr *= recipe.lr_factor(recipe.num_processes);
  return base;
}

/// As a job counts them.
int64_t steps_in_epoch(const Recipe& recipe) {
  const auto data = open_data(recipe.dataset.train, recipe);
  share_learnt(*data, nullptr);
  const DataLoader loader(*data, {}, loader_options(recipe, data.get(), true, 0, recipe.num_processes));
  return ceil_divide(loader.num_batches(), recipe.training.gradient_accumulation_steps);
}

/// Whether how long the job is changes what happens before its end, besides the rates.
bool heeds_length(const Recipe& recipe) {
  return std::ranges::any_of(recipe.callbacks, [](const Component<CallbackKind>& callback) {
    return std::ranges::find(kBlindToLength, callback.type) == kBlindToLength.end();
  });
}

/// Plans the forks of trials whose recipes are equal but for scheduler and length.
class Group {
 public:
  Group(std::map<size_t, LoadedRecipe> trials, int64_t most, ForkPlan& plan)
      : trials_(std::move(trials)), most_(most), plan_(plan) {}

  void plan() {
    const Recipe& first = trials_.begin()->second.recipe;
    if (const std::string why = why_not_forked(first); !why.empty()) {
      plan_.notes.push_back("trials that differ only in scheduler or length do not share steps: " + why);
      return;
    }
    const std::vector<GroupRates> base = base_rates(first);
    const int64_t steps_per_epoch = steps_in_epoch(first);
    for (const auto& [trial, loaded] : trials_) rates_.emplace(trial, Rates(loaded.recipe, base, steps_per_epoch));
    const bool are_known = std::ranges::all_of(rates_, [](const auto& one) { return one.second.are_known(); });
    if (!are_known) {
      plan_.notes.emplace_back(
          "trials that differ only in scheduler or length do not share steps: a scheduler follows the evaluations");
      return;
    }
    std::map<int64_t, std::vector<size_t>> classes;
    for (const auto& [trial, rates] : rates_) classes[heeds_length(first) ? rates.total() : 0].push_back(trial);
    for (auto& [length, members] : classes) split(std::move(members));
  }

 private:
  /// Follows trials whose rates are equal so far until each is alone.
  void split(std::vector<size_t> all) {
    std::vector<std::vector<size_t>> classes = {std::move(all)};
    size_t compared = 0;
    for (int64_t step = 0; !classes.empty(); ++step) {
      std::vector<std::vector<size_t>> next;
      for (const std::vector<size_t>& members : classes) {
        compared += members.size();
        split_at(step, members, next);
      }
      std::erase_if(next, [](const std::vector<size_t>& members) { return members.size() < 2; });
      classes = std::move(next);
      if (compared <= kMostTimesRates || classes.empty()) continue;
      plan_.notes.push_back("rates were compared for the first " + std::to_string(step + 1) +
                            " steps only; trials that are equal for longer share these");
      for (const std::vector<size_t>& members : classes) fork_all(members, step + 1);
      return;
    }
  }

  /// The trials that go on alike with the next step; what goes another way begins with the first one's steps. The last
  /// step of a trial is its own: what comes of it is its end.
  void split_at(int64_t step, const std::vector<size_t>& members, std::vector<std::vector<size_t>>& next) {
    std::map<std::vector<uint64_t>, std::vector<size_t>> ways;
    for (const size_t member : members) {
      Rates& rates = rates_.at(member);
      std::vector<uint64_t> way = rates.bits_at(step);
      way.push_back(step + 1 >= rates.total() ? member + 1 : 0);
      ways[std::move(way)].push_back(member);
    }
    for (auto& [way, own] : ways) {
      if (own[0] != members[0]) fork(own[0], members[0], step);
      next.push_back(std::move(own));
    }
  }

  void fork_all(const std::vector<size_t>& members, int64_t step) {
    for (size_t i = 1; i < members.size(); ++i) fork(members[i], members[0], step);
  }

  void fork(size_t trial, size_t parent, int64_t step) {
    step = std::min(step, most_);
    if (step < kFewestShared) return;
    while (plan_.forks[parent] && plan_.forks[parent]->step >= step) parent = plan_.forks[parent]->parent;
    plan_.forks[trial] = Fork{parent, step};
  }

  std::map<size_t, LoadedRecipe> trials_;
  int64_t most_;
  ForkPlan& plan_;
  std::map<size_t, Rates> rates_;
};

}  // namespace

ForkPlan plan_forks(const std::vector<Value>& resolved, const std::function<LoadedRecipe(size_t)>& load, int64_t most) {
  ForkPlan plan;
  plan.forks.resize(resolved.size());
  std::map<std::string, std::vector<size_t>> groups;
  for (size_t i = 0; i < resolved.size(); ++i) groups[common_text(resolved[i])].push_back(i);
  for (const auto& [text, members] : groups) {
    if (members.size() < 2) continue;
    std::map<size_t, LoadedRecipe> trials;
    for (const size_t member : members) trials.emplace(member, load(member));
    Group(std::move(trials), most, plan).plan();
  }
  std::ranges::sort(plan.notes);
  plan.notes.erase(std::unique(plan.notes.begin(), plan.notes.end()), plan.notes.end());
  return plan;
}

}  // namespace trainrun
