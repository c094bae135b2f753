#include "runner/sweep/sweep.h"

#include <poll.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <filesystem>

#include "registry/formats/files/file_io.h"
#include "registry/language/error.h"
#include "registry/language/text_forms.h"
#include "runner/run/run_folder.h"

namespace trainrun {
namespace {

constexpr int kWait = 20;           // milliseconds, between looks at what runs
constexpr int kLongestLock = 5000;  // milliseconds, that a killed process may hold a folder
constexpr uint64_t kMostOutput = uint64_t{16} << 20;

/// The last line that a process said, which is its error.
std::string last_line(const std::string& path) {
  if (!std::filesystem::exists(path)) return "";
  std::string text = read_file(path, kMostOutput);
  while (!text.empty() && text.back() == '\n') text.pop_back();
  return text.substr(text.rfind('\n') + 1);
}

std::string ending_text(int exit_code) {
  constexpr int kBySignal = 128;
  if (exit_code == kBySignal + SIGKILL) return "killed by signal 9; the machine may have too little memory";
  if (exit_code > kBySignal) return "killed by signal " + std::to_string(exit_code - kBySignal);
  return "ended with exit code " + std::to_string(exit_code);
}

}  // namespace

Sweep::Sweep(SweepOptions options, const Catalog& catalog)
    : options_(std::move(options)), catalog_(catalog), state_(std::vector<nlohmann::json>()) {
  create_folders(options_.folder + "/output");
  journal_ = std::make_unique<Journal>(options_.folder + "/journal.jsonl");
  state_ = SweepState(journal_->entries());
  for (const auto& entry : std::filesystem::directory_iterator(options_.folder)) {  // forks that a killed sweep began
    const std::string name = entry.path().filename().string();
    const size_t mark = name.find(kTemporaryMark);
    if (mark != std::string::npos && is_temporary_name(name, name.substr(1, mark - 1)))
      remove_all(entry.path().string());
  }
  const bool goes_on = state_.facts() && state_.facts()->to_json() == options_.facts.to_json();
  if (goes_on) {
    options_.tell("goes on with the sweep in " + options_.folder);
  } else {
    record(sweep_events::start(options_.facts));
  }
}

std::string Sweep::folder_of(int64_t trial) const {
  char name[32];
  std::snprintf(name, sizeof name, "/trial-%04lld", static_cast<long long>(trial));
  return options_.folder + name;
}

TrialProgress Sweep::progress_of(int64_t trial) const {
  return read_trial(folder_of(trial), options_.facts.metric, catalog_);
}

std::string Sweep::output_of(int64_t trial) const {
  return options_.folder + "/output" + folder_of(trial).substr(options_.folder.size()) + ".txt";
}

void Sweep::record(const nlohmann::json& entry) {
  journal_->append(entry);
  state_.apply(entry);
}

int Sweep::run() {
  plan_sharing();
  if (options_.retries_failed) {
    for (const SweepTrial& trial : state_.trials()) {
      if (trial.state == SweepTrial::State::kFailed) record(sweep_events::retried(trial.id));
    }
  }
  const SweepSignals signals;
  for (;;) {
    heed_signals();
    const bool has_started = signal_ == 0 && start_what_can_be();
    if (running_.empty() && !has_started) return signal_;
    ::poll(nullptr, 0, kWait);
    for (size_t i = 0; i < running_.size();) {
      const auto exit_code = running_[i].process->exit_code();
      if (!exit_code) {
        ++i;
        continue;
      }
      const Running ended = std::move(running_[i]);
      running_.erase(running_.begin() + static_cast<std::ptrdiff_t>(i));
      settle_ended(ended, *exit_code);
    }
  }
}

void Sweep::heed_signals() {
  while (const int number = SweepSignals::take()) {
    for (const Running& one : running_) one.process->tell(number);
    if (number == SIGINT || number == SIGTERM) signal_ = number;  // the others ask to save and to go on
  }
}

/// Whether something was started, or was found to be there already.
bool Sweep::start_what_can_be() {
  bool any = false;
  while (static_cast<int64_t>(running_.size()) < options_.jobs) {
    const auto trial = next_trial();
    if (!trial) return any;
    any = true;
    start(*trial);
  }
  return any;
}

std::optional<int64_t> Sweep::next_trial() {
  const auto ready = [&]() -> std::optional<int64_t> {
    for (const auto& [number, id] : state_.trial_of_number()) {
      const SweepTrial& trial = state_.trial(id);
      const bool is_free = trial.state == SweepTrial::State::kWaiting && !is_running(id) && !waits_for_parent(trial);
      if (is_free) return id;
    }
    return std::nullopt;
  };
  for (;;) {
    if (const auto id = ready()) return id;
    if (options_.facts.halving && !options_.facts.halving->decides_at_once) {
      if (const auto promotion = state_.halving()->next()) {
        const int64_t goal = state_.halving()->steps_of(promotion->rung + 1);
        record(sweep_events::promoted(promotion->trial, promotion->rung, goal));
        tell_of(state_.trial(promotion->trial), "is promoted, to step " + std::to_string(goal));
        continue;
      }
    }
    const auto& numbers = state_.trial_of_number();
    int64_t number = 0;
    while (numbers.contains(number)) ++number;
    if (number >= options_.facts.num_trials || !may_choose(number)) return std::nullopt;
    choose(number);
  }
}

bool Sweep::is_running(int64_t trial) const {
  return std::ranges::any_of(running_, [&](const Running& one) { return one.trial == trial; });
}

void Sweep::start(int64_t id) {
  take_finished(id, progress_of(id));
  const SweepTrial& trial = state_.trial(id);
  if (trial.state != SweepTrial::State::kWaiting) return;
  const std::string folder = folder_of(id);
  for (int waited = 0; is_run_in_use(folder) && waited < kLongestLock; waited += kWait) ::poll(nullptr, 0, kWait);
  std::vector<std::string> arguments = {options_.program, "run", options_.recipe};
  const std::vector<std::string> overrides = options_.space.overrides(points_.at(*number_of(id)));
  arguments.insert(arguments.end(), overrides.begin(), overrides.end());
  arguments.insert(arguments.end(), {output_override(folder), "--quiet"});
  if (const auto stop = step_to_stop(trial)) {
    arguments.insert(arguments.end(), {"--stop-after", std::to_string(*stop)});
  }
  int64_t slot = 0;
  while (std::ranges::any_of(running_, [&](const Running& one) { return one.slot == slot; })) ++slot;
  auto process = std::make_unique<TrialProcess>(std::move(arguments), cores_of(slot, options_.jobs), output_of(id));
  running_.push_back({id, slot, std::move(process)});
}

std::optional<int64_t> Sweep::step_to_stop(const SweepTrial& trial) const {
  std::optional<int64_t> stop = trial.goal;
  const auto own = number_of(trial.id);
  for (const auto& [number, fork] : forks_) {
    const bool is_own = own == fork.parent && fork.step > trial.step;
    if (is_own && (!stop || fork.step < *stop)) stop = fork.step;
  }
  return stop;
}

bool Sweep::is_begin_of_others(const SweepTrial& trial, int64_t step) const {
  const auto own = number_of(trial.id);
  return step > trial.step && std::ranges::any_of(forks_, [&](const auto& one) {
           return own == one.second.parent && one.second.step == step;
         });
}

void Sweep::settle_ended(const Running& ended, int exit_code) {
  const int64_t before = state_.trial(ended.trial).step;
  const TrialProgress progress = progress_of(ended.trial);
  if (!take_finished(ended.trial, progress) && exit_code == 0) take_stopped(ended.trial, progress);
  const SweepTrial& trial = state_.trial(ended.trial);
  if (trial.state != SweepTrial::State::kWaiting || signal_ != 0) return;
  if (exit_code == 0 && trial.step > before) return;  // it stopped where others begin
  std::string why = exit_code > 128 ? "" : last_line(output_of(trial.id));
  if (why.empty()) why = ending_text(exit_code);
  if (why.starts_with("trainrun: ")) why = why.substr(std::string("trainrun: ").size());
  record(sweep_events::failed(trial.id, trial.step, why));
  tell_of(state_.trial(ended.trial), "failed: " + why);
}

/// Takes what the folder of a trial says of a run that is done, and of the steps it began with: true where it is done.
bool Sweep::take_finished(int64_t id, const TrialProgress& progress) {
  if (const auto origin = origin_of(folder_of(id)); origin && !state_.trial(id).origin) {
    record(sweep_events::forked(id, origin->first, origin->second));
  }
  if (!progress.is_finished) return false;
  std::string why = progress.why;
  if (!progress.figure) why = "no evaluation gave " + options_.facts.metric;
  record(sweep_events::finished(id, progress.step, progress.figure, progress.seconds, why));
  const SweepTrial& after = state_.trial(id);
  const std::string figure = after.figure ? options_.facts.metric + " " + in_figures(*after.figure, 5) : why;
  tell_of(after, "finished: " + figure);
  return true;
}

/// Takes what a process came to that stopped where it was asked to, with exit code 0. A folder does not say as much by
/// itself: a checkpoint of that step may be one that a killed process had not evaluated, or whose run had still to finish.
void Sweep::take_stopped(int64_t id, const TrialProgress& progress) {
  const SweepTrial& trial = state_.trial(id);
  const int64_t stopped_at = progress.step;
  const auto stop = step_to_stop(trial);
  if (!stop || stopped_at < *stop) return;
  if (is_begin_of_others(trial, stopped_at)) {
    fork_from(trial);
  } else if (!trial.goal ||
             stopped_at < *trial.goal) {  // it is beyond: those that were to begin there are trained alone
    record(sweep_events::stopped(id, stopped_at));
  }
  if (trial.goal && stopped_at >= *trial.goal) note_reached(state_.trial(id), progress);
}

void Sweep::note_reached(const SweepTrial& trial, const TrialProgress& progress) {
  const int64_t step = *trial.goal;
  const auto figure = figure_at(folder_of(trial.id), options_.facts.metric, step);
  if (!figure) {
    const std::string why = "metrics.jsonl has no " + options_.facts.metric + " up to step " + std::to_string(step) +
                            ", by which trials are compared there; write evaluation.every=" + std::to_string(step) +
                            ", or a larger --min-steps";
    record(sweep_events::failed(trial.id, progress.step, why));
    tell_of(state_.trial(trial.id), "failed: " + why);
    return;
  }
  const auto rung = static_cast<int64_t>(trial.reached.size());
  std::optional<int64_t> goal;
  if (options_.facts.halving->decides_at_once) {
    Halving after = *state_.halving();
    after.note(trial.id, rung, options_.facts.loss_of(*figure));
    if (after.goes_on(trial.id, rung)) goal = after.steps_of(rung + 1);
  }
  record(sweep_events::reached(trial.id, {rung, step, *figure}, progress.seconds, goal));
  tell_of(state_.trial(trial.id),
          "at step " + std::to_string(step) + ": " + options_.facts.metric + " " + in_figures(*figure, 5));
}

void Sweep::tell_of(const SweepTrial& trial, const std::string& what) const {
  std::string values;
  for (const auto& [key, value] : trial.values) values += " " + key + "=" + value;
  options_.tell(folder_of(trial.id).substr(options_.folder.size() + 1) + values + " " + what);
}

}  // namespace trainrun
