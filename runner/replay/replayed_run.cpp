#include "runner/replay/replayed_run.h"

#include <ATen/Parallel.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <filesystem>
#include <set>

#include "registry/formats/files/file_io.h"
#include "registry/language/text_forms.h"
#include "runner/device/device.h"
#include "runner/device/machine.h"
#include "runner/run/checkpoint_state.h"
#include "runner/run/resume_path.h"
#include "runner/train/run_change.h"
#include "runner/train/train_loop.h"

namespace trainrun {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

StoredState stored_at(const std::string& path) {
  json state = parse_checkpoint_state(read_file(path + "/state.json", kMostStateBytes)).content;
  const auto step = state.at("step").get<int64_t>();
  return {path, step, std::move(state), /*is_own=*/true};
}

std::string recipe_of(const std::string& folder) {
  if (!holds_run(folder)) throw Error(folder + " is not a run's folder (recipe.yaml, log.txt)");
  return (fs::path(folder) / "recipe.yaml").string();
}

/// Throws Error for a run whose steps more than this process made.
void require_one_process(const Recipe& recipe, const std::string& path) {
  if (recipe.num_processes > 1) {
    throw Error(path + " was trained by " + std::to_string(recipe.num_processes) +
                " processes, and steps are made again by one: their gradients would not be those of the run");
  }
  if (recipe.dataset.all_folds()) {
    throw Error(path + " holds a run for each fold; name one of them: " + (fs::path(path) / "fold-0").string());
  }
}

/// Nothing of a replay is saved, and it does not look at the clock.
void keep_nothing(Recipe& recipe) {
  recipe.checkpoint.every.reset();
  recipe.checkpoint.background = false;
  recipe.training.max_time.reset();
}

void compare_tensors(const NamedTensors& a, const NamedTensors& b, const std::string& prefix, int64_t& differing,
                     StateDifference& difference) {
  const auto note = [&](const std::string& name, TensorDifference found) {
    ++differing;
    if (!difference.name.empty()) return;
    difference.name = prefix + name;
    difference.tensor = std::move(found);
  };
  const std::map<std::string, at::Tensor> of_b(b.begin(), b.end());
  std::set<std::string> seen;
  for (const auto& [name, tensor] : a) {
    seen.insert(name);
    const auto other = of_b.find(name);
    if (auto found = difference_of(tensor, other == of_b.end() ? at::Tensor() : other->second)) note(name, *found);
  }
  for (const auto& [name, tensor] : b) {
    if (!seen.contains(name)) note(name, *difference_of(at::Tensor(), tensor));
  }
}

}  // namespace

std::string StateDifference::counts_text() const {
  return std::to_string(weights) + " of " +
         counted(of_weights, "weight or buffer differs", "weights and buffers differ") +
         (optimizer > 0 ? ", and " + counted(optimizer, "tensor", "tensors") + " of the optimizer's state"
                        : ", and nothing of the optimizer's state");
}

std::optional<StateDifference> compare_states(const CheckpointContent& a, const CheckpointContent& b) {
  StateDifference difference;
  difference.of_weights = static_cast<int64_t>(a.model.size());
  compare_tensors(a.model, b.model, "", difference.weights, difference);
  compare_tensors(a.optimizer, b.optimizer, "the optimizer's ", difference.optimizer, difference);
  if (difference.name.empty()) return std::nullopt;
  return difference;
}

ReplayedRun::ReplayedRun(const std::string& folder, const std::vector<std::string>& overrides, Catalog& catalog)
    : path_(folder) {
  const std::string recipe = recipe_of(folder);
  prepare_device(recipe, overrides);
  loaded_ = load_recipe(recipe, overrides, catalog);
  require_one_process(loaded_.recipe, folder);
  read_states();
  read_changes();
  const int64_t unread = for_each_metric_line(folder, [&](const MetricLine& line) {
    if (!line.is_evaluation) lines_[line.step] = line.figures;
  });
  if (unread > 0) notes_.push_back(std::to_string(unread) + " lines of metrics.jsonl could not be read");
  if (!lines_.empty()) last_step_ = std::max(last_step_, lines_.rbegin()->first);
  keep_nothing(loaded_.recipe);
}

void ReplayedRun::read_states() {
  const std::string& resume = loaded_.recipe.checkpoint.resume;
  if (resume == "auto" || resume == "no") {
    states_.emplace_back();
  } else {
    const std::string start =
        checkpoint_to_go_on_from(resume, [&](const std::string& note) { notes_.push_back(note); });
    if (!fs::exists(start)) throw Error(path_ + " began with " + resume + ", which is not there any more");
    states_.push_back(stored_at(start));
    states_.back().is_own = false;
  }
  const std::string checkpoints = path_ + "/checkpoints";
  if (fs::exists(checkpoints)) {
    for (const std::string& name : CheckpointStore(checkpoints, {}).list()) {
      if (name.ends_with(kRestoredMark)) continue;  // its weights are those of an earlier step
      states_.push_back(stored_at(checkpoints + "/" + name));
    }
  }
  std::ranges::stable_sort(states_, {}, &StoredState::step);
  last_step_ = states_.back().step;
}

void ReplayedRun::read_changes() {
  const StoredState& newest = states_.back();
  changes_ = changes_of_run(path_, newest.is_own ? newest.state : json());
}

const StoredState& ReplayedRun::state_before(int64_t step) const {
  const auto after = std::ranges::find_if(states_, [&](const StoredState& state) { return state.step >= step; });
  if (after == states_.begin()) {
    throw Error("step " + std::to_string(step) + " was made before " + path_ + " began with " + states_[0].path +
                ", which is of step " + std::to_string(states_[0].step));
  }
  return *(after - 1);
}

std::optional<double> ReplayedRun::logged_loss(int64_t step) const {
  const auto line = lines_.find(step);
  if (line == lines_.end()) return std::nullopt;
  for (const auto& [name, value] : line->second) {
    if (name == "train/loss") return value;
  }
  return std::nullopt;
}

std::unique_ptr<Job> ReplayedRun::stand_at(const StoredState& from) {
  spdlog::set_level(spdlog::level::off);
  Job::Options options;
  options.quiet = true;
  options.dry_run = true;
  auto job = std::make_unique<Job>(loaded_, options);
  job->loggers = std::make_unique<Loggers>();
  if (from.path.empty()) {
    if (states_.back().state.is_object()) job->check_data(states_.back().state);
  } else {
    job->continues = from.is_own;  // a run that began with another one's checkpoint has its own changes alone
    job->restore(from.path);
  }
  repeat_changes(*job, from);
  note_machine(states_.back());
  if (!job->device.is_cpu() && !loaded_.recipe.deterministic) {
    add_note(path_ + " computes on a GPU without deterministic: true, and may get other last digits each time");
  }
  return job;
}

/// As a resume from there does, except for when it saves: nothing is.
void ReplayedRun::repeat_changes(Job& job, const StoredState& from) const {
  job.changed.checkpoint_every.reset();
  job.later_changes.clear();
  for (const RunChange& change : changes_) {
    if (change.step > from.step && change.key != "checkpoint.every") job.later_changes.push_back(change);
  }
}

void ReplayedRun::note_machine(const StoredState& from) {
  if (!from.state.is_object()) return;
  const json saved = from.state.value("machine", json::object());
  const json facts = machine_facts();
  for (const auto& [key, now] : facts.items()) {
    if (!saved.contains(key) || saved[key] == now) continue;
    const std::string note = path_ + " was trained with other " + key + ": " + saved[key].dump() + ", here " +
                             now.dump() + "; numbers may differ in their last digits";
    add_note(note);
  }
}

void ReplayedRun::add_note(const std::string& note) {
  if (std::ranges::find(notes_, note) == notes_.end()) notes_.push_back(note);
}

void make_steps(Job& job, const std::function<bool(const StepOutcome&)>& after) {
  job.leave_after = after;
  train(job);
}

}  // namespace trainrun
