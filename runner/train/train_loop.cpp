#include "runner/train/train_loop.h"

#include <spdlog/spdlog.h>

#include <cmath>

#include "registry/tensors/component_error.h"
#include "runner/base/signals.h"
#include "runner/control/control.h"
#include "runner/device/device.h"
#include "runner/loggers/loggers.h"
#include "runner/run/checkpoint_store.h"
#include "runner/train/asked_signals.h"
#include "runner/train/finite.h"
#include "runner/train/resources.h"
#include "runner/train/run_changes.h"
#include "runner/train/step_log.h"
#include "runner/train/tensor_histograms.h"
#include "runner/train/train_step.h"

namespace trainrun {
namespace {

/// Whether something that happens `every` epoch or N steps is due now.
template <class Every>
bool is_due(const Every& every, int64_t step, bool epoch_ended) {
  if (!every) return false;
  if (const auto* steps = std::get_if<int64_t>(&*every)) return step % *steps == 0;
  return std::holds_alternative<std::string>(*every) && epoch_ended;
}

/// The seconds that `every` says, if it is a time.
std::optional<double> seconds_of(const EveryOrTime& every) {
  const auto* time = every ? std::get_if<Duration>(&*every) : nullptr;
  return time ? std::optional(time->seconds) : std::nullopt;
}

std::string numbered(const char* format, int64_t number) {
  char name[32];
  std::snprintf(name, sizeof name, format, static_cast<long long>(number));
  return name;
}

/// Adds the time for which it lives to `sum`.
class PhaseTime {
 public:
  PhaseTime(const StepLog& log, double& sum) : log_(log), sum_(sum), begin_(log.seconds()) {}
  ~PhaseTime() { sum_ += log_.seconds() - begin_; }
  PhaseTime(const PhaseTime&) = delete;
  PhaseTime& operator=(const PhaseTime&) = delete;

 private:
  const StepLog& log_;
  double& sum_;
  double begin_;
};

/// Drives a Job: what happens between steps.
///
/// What is due after a step is saved before it is evaluated; `evaluation_due` in the checkpoint says so until the
/// evaluation's figures are added to it. Whatever happens between, a resumed run makes the evaluation first.
class Trainer {
 public:
  Trainer(Job& job, std::optional<int64_t> stop_after)
      : job_(job),
        progress_(job.progress),
        total_steps_(job.total_steps()),
        stop_after_(stop_after),
        log_(job),
        changes_(job),
        first_step_(progress_.step) {
    is_over_ = is_past_max_time(progress_.seconds) || is_past_max_tokens();
    has_ended_ = is_at_end();
    saved_seconds_ = log_.seconds();
    if (job_.recipe.heeds_clock()) job_.ask_clock = [this](StepDecision& decision) { ask_clock(decision); };
  }
  ~Trainer() { job_.ask_clock = nullptr; }
  Trainer(const Trainer&) = delete;
  Trainer& operator=(const Trainer&) = delete;

  int run() {
    job_.model->train();
    job_.begin_saving();
    saved_step_ = progress_.step;
    StopSignals::begin_training(progress_.step);
    if (progress_.evaluation_due) catch_up();
    while (goes_on()) train_epoch();
    if ((signal_ != 0 || is_where_to_stop()) && !is_done()) return stop();
    if (!job_.leave_after) finish();
    return 0;
  }

  double seconds() const { return log_.seconds(); }

 private:
  bool is_at_end() const {
    return progress_.step >= total_steps_ || !progress_.stopped.empty() || is_over_ || is_left_;
  }
  bool is_where_to_stop() const { return stop_after_ && progress_.step >= *stop_after_; }
  bool goes_on() const { return signal_ == 0 && !is_at_end() && !is_where_to_stop(); }
  bool is_done() const { return is_at_end() && !progress_.evaluation_due; }
  bool saves() const { return job_.checkpoint_every().has_value(); }
  bool epoch_ended() const { return progress_.batch == 0; }
  bool is_past_max_time(double seconds) const {
    const auto& max_time = job_.recipe.training.max_time;
    return max_time && seconds >= max_time->seconds;
  }
  bool is_past_max_tokens() const {
    const auto& max_tokens = job_.recipe.training.max_tokens;
    return max_tokens && progress_.tokens >= *max_tokens;
  }
  void ask_clock(StepDecision& decision) const {
    const double now = log_.seconds();
    decision.is_last = is_past_max_time(now);
    const auto interval = seconds_of(job_.checkpoint_every());
    decision.is_save_due = interval && now - saved_seconds_ >= *interval;
  }

  void train_epoch() {
    const auto batches = job_.train_loader->iterate(progress_.epoch, progress_.batch);
    const int64_t num_batches = job_.train_loader->num_batches();
    const int64_t epoch = progress_.epoch;
    while (progress_.epoch == epoch && goes_on()) {
      const std::optional<StepOutcome> outcome = train_step(job_, *batches);
      if (!outcome) return heed_signals();
      job_.callbacks->after_step(outcome->figures);
      StopSignals::note_step(progress_.step);
      log_.record(*outcome, epoch);
      tell_histograms();
      if (progress_.batch == num_batches) ++progress_.epoch, progress_.batch = 0;
      is_left_ = job_.leave_after && job_.leave_after(*outcome);
      if (is_left_) return;
      between_steps(outcome->decision);
    }
  }

  void tell_histograms() {
    if (!job_.loggers->wants_histograms(progress_.step)) return;
    HistogramRecord record = {progress_.step, std::exchange(job_.gradient_histograms, {})};
    if (job_.shards()) return;
    for (Histogram& histogram : weight_histograms(job_.parallel->parameters())) {
      record.histograms.push_back(std::move(histogram));
    }
    for (const Histogram& histogram : record.histograms) {
      if (histogram.not_finite == 0) continue;
      spdlog::warn("tensorboard: step {}: {} numbers of {} are not finite; its histogram leaves them out", record.step,
                   histogram.not_finite, histogram.name);
    }
    std::erase_if(record.histograms, [](const Histogram& histogram) { return histogram.count == 0; });
    job_.loggers->on_histograms(record);
  }

  /// After a step, with the signal that several ranks agreed on in it.
  void between_steps(const StepDecision& decision) {
    const StepLog::Pause pause(log_);
    job_.heed_writer();
    changes_.heed(decision.is_asked);
    is_over_ = decision.is_last;
    if (is_over_) spdlog::info("training ends after step {}: {}", progress_.step, over_text());
    const bool last = progress_.step == total_steps_ || is_over_;
    const auto due = [&](const auto& every) { return every && (last || is_due(every, progress_.step, epoch_ended())); };
    progress_.evaluation_due = !job_.eval_splits.empty() && due(job_.evaluation_every());
    if (last) end_training();
    if (due(job_.checkpoint_every()) || decision.is_save_due) save(false);
    heed(decision.signal);
    const bool time_has_passed = saved_step_ == progress_.step;
    if (job_.group->is_alone() || time_has_passed) heed_signals();
    if (signal_ != 0 || !progress_.evaluation_due) return;
    const auto best = run_evaluation();
    if (best && saved_step_ == progress_.step) {
      job_.amend(checkpoint_name(), *best);
    } else if (best && (*best || is_at_end()) && saves()) {
      save(*best);
    }
    heed_signals();
  }

  /// Makes the evaluation that the run was stopped before.
  void catch_up() {
    const StepLog::Pause pause(log_);
    progress_.evaluation_due = !job_.eval_splits.empty() && job_.evaluation_every();
    if (!progress_.evaluation_due) return;
    const auto best = run_evaluation();
    if (best && saves()) save(*best);  // the checkpoint may lie in another run's folder
  }

  void heed_signals() {
    if (signal_ == 0) heed(agreed_signal(*job_.group));
  }

  void heed(int asked) {
    if (asked == kSaveAndGoOn) {
      save_on_request();
    } else {
      signal_ = asked;
    }
  }

  void save_on_request() {
    if (!saves()) {
      const char* text = "asked to save, but checkpoint.every is null; nothing is saved";
      if (job_.control) job_.control->answer_saves(false, text);
      return spdlog::warn(text);
    }
    if (saved_step_ != progress_.step) save(false);
    job_.finish_saving();  // who asks may be about to take the machine away
    if (job_.control) job_.control->answer_saves(true, "step " + std::to_string(progress_.step) + " is saved");
  }

  /// Whether this is the best so far; nothing where a signal came before it was done.
  std::optional<bool> run_evaluation() {
    read_account(job_);
    const std::optional<Figures> figures = evaluate_splits();
    if (!figures) return std::nullopt;
    tell_evaluation(*figures);
    const Verdict verdict = job_.callbacks->after_evaluation(*figures);
    heed_stop(verdict.stop);
    if (is_at_end() && verdict.is_best && saves() && job_.callbacks->restores_kept()) save_best_apart();
    const bool has_restored = is_at_end() && job_.callbacks->restore_kept();
    is_restored_ = is_restored_ || has_restored;
    bool has_changed = has_restored;
    if (!progress_.stopped.empty() && end_training()) has_changed = true;
    if (has_changed && !evaluate_again()) return std::nullopt;
    return verdict.is_best && !has_restored;
  }

  /// The last evaluation is the best by keep_best, and a callback goes back to the best by another figure: both are kept.
  /// Until the second is saved, too, a resume makes the evaluation again.
  void save_best_apart() {
    progress_.evaluation_due = true;
    if (saved_step_ == progress_.step) {
      job_.amend(checkpoint_name(), /*best=*/true);
    } else {
      save(/*best=*/true);
    }
    spdlog::info("checkpoint.keep_best keeps the weights of step {}, which are not those that the run ends with",
                 progress_.step);
  }

  /// Whether callbacks changed what evaluations use, once training is over.
  bool end_training() { return !std::exchange(has_ended_, true) && job_.callbacks->after_training(); }

  /// After the last evaluation, where weights changed since: what came of that is evaluated and saved, too.
  bool evaluate_again() {
    saved_step_ = -1;
    progress_.evaluation_due = true;
    const std::optional<Figures> figures = evaluate_splits();
    if (figures) tell_evaluation(*figures);
    return figures.has_value();
  }

  void tell_evaluation(const Figures& figures) {
    progress_.metrics = figures;
    progress_.evaluation_due = false;
    job_.heed_writer();
    const int64_t epoch = progress_.epoch - (epoch_ended() ? 1 : 0);
    job_.loggers->on_evaluation({progress_.step, epoch, log_.seconds(), progress_.metrics});
    if (const auto fault = non_finite_loss(figures)) spdlog::warn("{} after step {}", *fault, progress_.step);
  }

  /// Nothing where a signal came before it was done: all is then as it was.
  std::optional<Figures> evaluate_splits() {
    const PhaseTime phase_time(log_, progress_.evaluating);
    const Tensors random = job_.random_states();
    job_.group->set_step(progress_.step);
    const PhaseScope phase(*job_.group, Phase::kEvaluation);
    job_.parallel->share_buffers();
    EvaluationScope scope(*job_.callbacks);
    if (scope.changes()) job_.parallel->share_buffers();
    EvaluationControl control = {*job_.group};
    control.step = progress_.step;
    control.scope = &scope;
    control.watch = job_.watch.get();
    control.told = &told_;
    control.gives_up = [&, asked = int64_t{0}]() mutable { return gives_up_evaluation(random, scope, asked++); };
    std::optional<Figures> figures = Figures();
    for (size_t i = 0; i < job_.eval_splits.size() && figures; ++i) {
      control.prefix = job_.recipe.dataset.eval->sets[i].prefix();
      const auto own = evaluate(job_.recipe, *job_.model, *job_.eval_splits[i].loader, job_.metrics, control);
      if (own) {
        figures->insert(figures->end(), own->begin(), own->end());
      } else {
        figures.reset();
      }
    }
    job_.model->train();
    if (!figures) job_.set_random_states(random);
    return figures;
  }

  /// `random`: where random numbers stood before the evaluation.
  bool gives_up_evaluation(const Tensors& random, EvaluationScope& scope, int64_t asked) {
    job_.heed_writer();
    constexpr int64_t kBatchesBetweenAgreements = 8;  // each makes the ranks wait for each other
    if (!job_.group->is_alone() && asked % kBatchesBetweenAgreements != 0) return false;
    const int signal = agreed_signal(*job_.group);
    if (signal != kSaveAndGoOn) {
      signal_ = signal;
      return signal != 0;
    }
    const Tensors now = job_.random_states();
    job_.set_random_states(random);
    scope.leave();
    save_on_request();
    scope.enter();
    job_.set_random_states(now);
    return false;
  }

  /// A callback's `reason` to end training here, or "". All ranks do what one of them says.
  void heed_stop(const std::string& reason) {
    if (job_.recipe.callbacks.empty()) return;
    progress_.stopped = reason;
    const bool is_asked = job_.group->max(reason.empty() ? 0 : 1, "callbacks") > 0;
    if (is_asked && reason.empty()) progress_.stopped = "a callback of another rank says so";
    if (progress_.stopped.empty()) return;
    spdlog::info("training ends after step {}: {}", progress_.step, progress_.stopped);
  }

  std::string over_text() const {
    if (is_past_max_tokens()) {
      return "training.max_tokens, " + std::to_string(*job_.recipe.training.max_tokens) + ", have been seen";
    }
    return "training.max_time, " + job_.recipe.training.max_time->text + ", is over";
  }

  /// Restored weights do not take the place of those of the last step, which keep_best may keep.
  std::string checkpoint_name() const {
    const bool is_apart = is_restored_ && job_.recipe.checkpoint.keep_best;
    return (epoch_ended() ? numbered("epoch-%04lld", progress_.epoch) : numbered("step-%08lld", progress_.step)) +
           (is_apart ? kRestoredMark : "");
  }

  void save(bool best) {
    const PhaseTime phase_time(log_, progress_.saving);
    read_account(job_);
    require_finite_weights();
    progress_.seconds = log_.seconds();
    job_.save(checkpoint_name(), best);
    saved_step_ = progress_.step;
    saved_seconds_ = progress_.seconds;
  }

  void require_finite_weights() {
    const auto name = non_finite_weight(job_);
    if (!name) return;
    const std::string message =
        "the weights are not finite after step " + std::to_string(progress_.step) + ": " + *name +
        " holds NaN or an infinity; they are not saved; try a lower learning rate or max_grad_norm";
    throw NonFiniteNumbers(message + newest_checkpoint(job_), progress_.step, /*is_explained=*/false);
  }

  int stop() {
    if (saves() && saved_step_ != progress_.step) save(false);
    job_.finish_saving();
    const char* reason = signal_ != 0 ? signal_name(signal_) : "--stop-after";
    job_.loggers->on_end({progress_.step, log_.seconds(), reason, progress_.metrics});
    return signal_;
  }

  void finish() {
    if (saved_step_ != progress_.step || !saves()) require_finite_weights();
    if (const auto fault = non_finite_loss(progress_.metrics)) {
      throw TrainingError("the last evaluation failed: " + *fault + newest_finite_evaluation(job_));
    }
    const double took = log_.seconds();
    nlohmann::json figures = nlohmann::json::object();
    for (const auto& [name, value] : progress_.metrics) figures[name] = value;
    nlohmann::json summary = {
        {"step", progress_.step},
        {"seconds", took},
        {"seconds_of", {{"evaluations", progress_.evaluating}, {"checkpoints", progress_.saving}}},
        {"metrics", figures},
        {"ranks", resources_of_ranks(job_, progress_.step - first_step_)}};
    if (!progress_.stopped.empty()) summary["stopped"] = progress_.stopped;
    if (is_over_ && progress_.stopped.empty()) summary["stopped"] = over_text();
    if (progress_.tokens > 0) summary["tokens"] = progress_.tokens;
    if (!job_.device.is_cpu()) summary["peak_gpu_memory"] = peak_memory(job_.device);  // bytes, of this process
    job_.finish_saving();
    {
      const PhaseScope phase(*job_.group, Phase::kCheckpoint);  // the others wait for rank 0's disk as they do then
      if (job_.is_main()) job_.folder->finish(summary.dump(2) + "\n");
      job_.group->leave();
    }
    job_.loggers->on_end({progress_.step, took, "", progress_.metrics});
  }

  Job& job_;
  Progress& progress_;
  int64_t total_steps_;
  std::optional<int64_t> stop_after_;  // to go on later
  StepLog log_;
  RunChanges changes_;
  std::set<std::string> told_;  // by evaluations
  int64_t first_step_;          // that this process began with
  int signal_ = 0;              // to stop
  int64_t saved_step_ = -1;     // of the newest checkpoint
  double saved_seconds_;        // of it, or of this start
  bool is_over_;                // training.max_time or max_tokens
  bool has_ended_;              // callbacks were told that training is over
  bool is_left_ = false;        // by Job::leave_after
  bool is_restored_ = false;    // the weights are those of an earlier step
};

/// After training failed: what was copied before is still written; if that fails, too, that is reported.
void finish_after_error(Job& job) {
  if (!job.checkpoints) return;
  try {
    job.checkpoints->finish();
  } catch (const std::exception& error) {
    spdlog::error("the checkpoint that was being written is not saved: {}", error_text(error));
  }
}

}  // namespace

int train(Job& job, std::optional<int64_t> stop_after) {
  Trainer trainer(job, stop_after);
  try {
    return trainer.run();
  } catch (const std::exception& error) {
    const std::string text = error_text(error);
    write_error_to_log(text);  // who called this tells the console
    finish_after_error(job);
    job.loggers->on_end({job.progress.step, trainer.seconds(), "error: " + text, job.progress.metrics});
    throw;
  }
}

}  // namespace trainrun
