#include "runner/train/run_changes.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <ctime>
#include <functional>
#include <utility>

#include "registry/formats/files/file_io.h"
#include "registry/language/codec.h"
#include "registry/language/error.h"
#include "registry/tensors/component_error.h"
#include "runner/control/control.h"
#include "runner/train/job.h"

namespace trainrun {
namespace {

using nlohmann::json;

constexpr const char* kLr = "optimizer.lr";

/// What may be changed: a job can take it between two steps, and a resumed one again.
struct Changeable {
  const char* key;
  std::function<std::string(const Job&)> of_recipe;                    // its value there
  std::function<std::string(const Job&, const std::string&)> why_not;  // a value cannot be; or ""
  std::function<void(Job&, const std::string&)> set;
};

std::string text_of_every(const Every& every) {
  if (!every) return "null";
  const auto* steps = std::get_if<int64_t>(&*every);
  return steps ? std::to_string(*steps) : std::get<std::string>(*every);
}

std::string text_of_every(const EveryOrTime& every) {
  if (!every) return "null";
  if (const auto* steps = std::get_if<int64_t>(&*every)) return std::to_string(*steps);
  if (const auto* time = std::get_if<Duration>(&*every)) return time->text;
  return std::get<std::string>(*every);
}

std::string why_not_a_number_of_steps(const std::string& value) {
  const auto steps = parse_integer(value);
  return steps && *steps >= 1 ? "" : "expected a number of steps >= 1, found '" + value + "'";
}

std::string why_not_every(const std::string& value) {
  if (value == "epoch" || why_not_a_number_of_steps(value).empty()) return "";
  return "expected epoch or a number of steps >= 1, found '" + value + "'";
}

/// `epoch`, or a number of steps.
template <class E>
E every_of(const std::string& value) {
  using Choice = typename E::value_type;
  if (value == "epoch") return Choice(value);
  return Choice(*parse_integer(value));
}

// --- optimizer.lr

/// Whether the recipe's `lr` is that of the group, by the group's number.
std::vector<bool> follow_lr(const Job& job) {
  const Component<OptimizerKind>& optimizer = job.recipe.optimizer;
  const OptimizerInputs inputs =
      group_parameters(optimizer, job.parallel->parameters(), job.model->lr_scales(job.recipe));
  std::vector<bool> follow;
  for (const ParameterGroup& group : inputs.groups) {
    const auto of_group = [&](const GroupSpec& spec) { return spec.options == group.options; };
    const auto spec =
        std::find_if(optimizer.common.param_groups.begin(), optimizer.common.param_groups.end(), of_group);
    follow.push_back(spec == optimizer.common.param_groups.end() || !spec->overrides.find("lr"));
  }
  return follow;
}

std::string lr_of_recipe(const Job& job) {
  const json& attributes = job.recipe.optimizer.attributes;
  const auto lr = attributes.find("lr");
  return lr != attributes.end() && lr->is_number() ? detail::number_text(lr->get<double>()) : "";
}

std::string why_not_lr(const Job& job, const std::string& value) {
  const auto lr = parse_number(value);
  if (!lr || *lr < 0) return "expected a number >= 0, found '" + value + "'";
  const std::string own = lr_of_recipe(job);
  const std::string& type = job.recipe.optimizer.type;
  if (own.empty()) return type + " has no single lr of its own";
  if (job.scheduler && !job.scheduler->state().is_null()) {
    return job.recipe.scheduler->type + " keeps a learning rate of its own, which it lowers by what evaluations find";
  }
  const std::vector<bool> follow = follow_lr(job);
  const std::vector<GroupRates>& rates = job.optimizer->initial_rates();
  bool is_plain = follow.size() == rates.size();
  for (size_t i = 0; is_plain && i < rates.size(); ++i) {
    is_plain = !follow[i] || detail::number_text(rates[i].lr) == own;
  }
  if (!is_plain) return type + " makes its learning rates of more than lr";
  if (std::find(follow.begin(), follow.end(), true) == follow.end()) return "each of the param_groups has its own lr";
  return "";
}

/// The rates that schedules begin with, if the recipe's `lr` were `lr`.
std::vector<GroupRates> base_rates(const Job& job, double lr) {
  const double factor = job.recipe.lr_factor(job.world_size());
  const std::vector<bool> follow = follow_lr(job);
  std::vector<GroupRates> rates = job.optimizer->initial_rates();
  for (size_t i = 0; i < rates.size(); ++i) rates[i].lr = (follow[i] ? lr : rates[i].lr) * factor;
  return rates;
}

/// In how many of the scheduler's next steps (or epochs: its interval) the rates are the same whatever the recipe's `lr`
/// is, from the next one on; nothing where that holds to the end of the job.
std::optional<int64_t> idle_length(const Job& job, double lr) {
  if (!job.scheduler) return 0;
  constexpr int64_t kMostLooked = 1'000'000;  // a tenth of a second
  std::vector<GroupRates> rates = base_rates(job, lr);
  std::vector<GroupRates> others = base_rates(job, lr == 0 ? 1 : 2 * lr);
  const auto scheduler = build_scheduler(job, rates);
  const auto other = build_scheduler(job, others);
  const bool by_epoch = job.recipe.scheduler->common.interval == Interval::kEpoch;
  const int64_t steps = job.total_steps() - job.progress.step;
  const int64_t left = by_epoch ? steps / job.steps_per_epoch() + 1 : steps;
  const int64_t stride = left / kMostLooked + 1;
  for (int64_t i = 0; i < left; i += stride) {
    scheduler->set(job.scheduler_time() + i, rates);
    other->set(job.scheduler_time() + i, others);
    const auto is_same = [](const GroupRates& a, const GroupRates& b) { return a.lr == b.lr; };
    if (!std::ranges::equal(rates, others, is_same)) return i;
  }
  return std::nullopt;
}

/// Why a change of lr would change nothing; or "".
std::string why_idle(const Job& job, const std::string& value) {
  if (idle_length(job, *parse_number(value))) return "";
  return std::string(kLr) + ": no learning rate that " + job.recipe.scheduler->type +
         " sets from here to the end of the job depends on it";
}

/// ", but before step 500 …": where a change of lr counts only later; or "".
std::string lateness(const Job& job, const std::string& value) {
  const int64_t length = idle_length(job, *parse_number(value)).value_or(0);
  if (length == 0) return "";
  const bool by_epoch = job.recipe.scheduler->common.interval == Interval::kEpoch;
  const std::string begin = by_epoch ? "epoch " + std::to_string(job.progress.epoch + length) + ", counted from 0,"
                                     : "step " + std::to_string(job.progress.step + length + 1);
  return ", but before " + begin + " no learning rate that " + job.recipe.scheduler->type + " sets depends on it";
}

/// As if the recipe had said so: the scheduler goes on from there.
void set_lr(Job& job, const std::string& value) {
  job.rates = base_rates(job, *parse_number(value));
  if (job.scheduler) {
    job.scheduler = build_scheduler(job);
  } else {
    scale_rates(job.rates);
  }
}

/// The learning rates of the next step.
std::vector<double> next_rates(Job& job) {
  job.set_rates();
  std::vector<double> rates;
  for (const GroupRates& group : job.rates) rates.push_back(group.lr);
  return rates;
}

// --- The rest

const std::vector<Changeable>& changeable() {
  static const std::vector<Changeable> all = {
      {kLr, lr_of_recipe, why_not_lr, set_lr},
      {"logging.every_steps", [](const Job& job) { return std::to_string(job.recipe.logging.every_steps); },
       [](const Job&, const std::string& value) { return why_not_a_number_of_steps(value); },
       [](Job& job, const std::string& value) { job.changed.log_every = parse_integer(value); }},
      {"checkpoint.every", [](const Job& job) { return text_of_every(job.recipe.checkpoint.every); },
       [](const Job&, const std::string& value) { return why_not_every(value); },
       [](Job& job, const std::string& value) { job.changed.checkpoint_every = every_of<EveryOrTime>(value); }},
      {"evaluation.every", [](const Job& job) { return text_of_every(job.recipe.evaluation.every); },
       [](const Job& job, const std::string& value) {
         return job.eval_splits.empty() ? "the recipe has no dataset.eval" : why_not_every(value);
       },
       [](Job& job, const std::string& value) { job.changed.evaluation_every = every_of<Every>(value); }},
  };
  return all;
}

const Changeable* changeable(const std::string& key) {
  for (const Changeable& one : changeable()) {
    if (key == one.key) return &one;
  }
  return nullptr;
}

std::string why_not(const Job& job, const std::string& key, const std::string& value) {
  if (const Changeable* one = changeable(key)) {
    const std::string fault = one->why_not(job, value);
    return fault.empty() ? "" : key + ": " + fault;
  }
  std::vector<std::string> keys;
  for (const Changeable& one : changeable()) keys.emplace_back(one.key);
  std::string list;
  for (const std::string& name : keys) list += (list.empty() ? "" : ", ") + name;
  return key + " cannot be changed while a run goes on; " + list + " can: a resumed run repeats their changes exactly" +
         suggestion(key, keys);
}

/// What is in effect now.
std::string value_now(const Job& job, const std::string& key) {
  const std::vector<RunChange>& changes = job.progress.changes;
  for (auto change = changes.rbegin(); change != changes.rend(); ++change) {
    if (change->key == key && change->of_recipe == changeable(key)->of_recipe(job)) return change->value;
  }
  return changeable(key)->of_recipe(job);
}

}  // namespace

/// What rank 0 is asked to change, and what whoever asked is told once that is done.
struct RunChanges::Asked {
  std::vector<RunChange> changes;
  std::vector<std::pair<ControlCommand, std::string>> answers;
};

std::string apply_change(Job& job, const RunChange& change) {
  const std::string what = change.key + ", which trainrun ctl changed from " + change.before + " to " + change.value +
                           " after step " + std::to_string(change.step) + ",";
  const Changeable* one = changeable(change.key);
  if (!one) return what + " cannot be changed by this version: the change is not made again";
  const std::string own = one->of_recipe(job);
  if (own != change.of_recipe) return what + " is " + own + " in the recipe by now, which counts";
  if (const std::string fault = one->why_not(job, change.value); !fault.empty()) {
    return what + " is not changed again: " + fault;
  }
  one->set(job, change.value);
  return what + " is " + change.value + " again";
}

void RunChanges::heed(bool is_asked) {
  profile_.after_step();
  std::vector<RunChange>& later = job_.later_changes;
  while (!later.empty() && later.front().step <= job_.progress.step) {
    const RunChange change = later.front();
    later.erase(later.begin());
    spdlog::info(apply_change(job_, change));
    job_.progress.changes.push_back(change);
  }
  if (!is_asked) return;
  json asked = json::array();
  const auto [own_changes, answers] = asked_changes();
  for (const RunChange& change : own_changes) asked.push_back(to_json(change));
  const std::string shared = job_.group->share_text(asked.dump(), "changes by trainrun ctl");
  const std::vector<RunChange> changes = changes_from(json::parse(shared));
  for (const RunChange& change : changes) make(change);
  if (changes.empty() || !job_.is_main()) return;
  const std::string fault = write_history();
  json all = json::array();
  for (const RunChange& change : job_.progress.changes) all.push_back(to_json(change));
  job_.control->set_changes(std::move(all));
  for (const auto& [command, text] : answers) job_.control->answer(command, true, text + fault);
}

RunChanges::Asked RunChanges::asked_changes() {
  Asked asked;
  if (!job_.control) return asked;
  const int64_t step = job_.progress.step;
  for (const ControlCommand& command : job_.control->take()) {
    if (command.kind == ControlCommand::Kind::kProfile) {
      if (profile_.is_on()) {
        job_.control->answer(command, false, "a profile is being made already");
        continue;
      }
      const std::string path = job_.folder->path() + "/profile-step-" + std::to_string(step + 1) + ".json";
      spdlog::info("trainrun ctl: the next {} steps are profiled", command.steps);
      profile_.begin(command.steps, path, [this, command](bool is_done, const std::string& text) {
        spdlog::info("trainrun ctl: {}", text);
        job_.control->answer(command, is_done, text);
      });
      continue;
    }
    std::string fault;
    for (const auto& [key, value] : command.settings) {
      if (fault.empty()) fault = why_not(job_, key, value);
      if (fault.empty() && key == kLr) fault = why_idle(job_, value);
    }
    if (!fault.empty()) {
      job_.control->answer(command, false, fault + "; nothing is changed");
      continue;
    }
    std::string said;
    for (const auto& [key, value] : command.settings) {
      const std::string before = value_now(job_, key);
      said += (said.empty() ? "" : ", ") + key + " is " + value + ", it was " + before;
      if (key == kLr) said += lateness(job_, value);
      asked.changes.push_back(
          {step, static_cast<int64_t>(std::time(nullptr)), key, before, value, changeable(key)->of_recipe(job_)});
    }
    asked.answers.emplace_back(command, "from step " + std::to_string(step + 1) + " on: " + said);
  }
  return asked;
}

void RunChanges::make(const RunChange& change) {
  const std::vector<double> before = next_rates(job_);
  changeable(change.key)->set(job_, change.value);
  const bool is_idle = change.key == kLr && job_.scheduler &&
                       parse_number(change.value) != parse_number(change.before) && next_rates(job_) == before;
  if (is_idle) {
    spdlog::warn("trainrun ctl: {} sets learning rates that do not depend on optimizer.lr, at this step at least",
                 job_.recipe.scheduler->type);
  }
  job_.progress.changes.push_back(change);
  spdlog::info("trainrun ctl: from step {} on, {} is {}; it was {}", change.step + 1, change.key, change.value,
               change.before);
  const auto dropped =
      std::erase_if(job_.later_changes, [&](const RunChange& later) { return later.key == change.key; });
  if (dropped > 0)
    spdlog::info("{} later changes of {} that were made before the resume are not made again", dropped, change.key);
}

std::string RunChanges::write_history() const {
  std::string text;
  for (const std::vector<RunChange>* changes : {&job_.progress.changes, &job_.later_changes}) {
    for (const RunChange& change : *changes) text += to_json(change).dump() + "\n";
  }
  try {
    write_file_atomically(job_.folder->path() + "/" + kRecipeHistory, text);
    return "";
  } catch (const FileError& error) {  // checkpoints have it, too
    const std::string fault = std::string("the change is not in the history: ") + error.what();
    spdlog::warn("trainrun ctl: {}", fault);
    return "; " + fault;
  }
}

}  // namespace trainrun
