#include "runner/train/step_log.h"

#include <algorithm>
#include <utility>

#include "runner/model/figures.h"
#include "runner/train/train_step.h"

namespace trainrun {

size_t leading_group(const std::vector<GroupRates>& rates) {
  const auto learns = [](const GroupRates& group) { return group.lr != 0 && group.lr_scale != 0; };
  const auto first = std::find_if(rates.begin(), rates.end(), learns);
  return first == rates.end() ? 0 : static_cast<size_t>(first - rates.begin());
}

StepLog::StepLog(Job& job)
    : job_(job),
      rate_group_(leading_group(job.rates)),
      utilization_(job),
      start_(job.clock()),
      seconds_before_(job.progress.seconds),
      last_line_(start_) {}

double StepLog::seconds() const {
  return seconds_before_ + std::chrono::duration<double>(job_.clock() - start_).count();
}

void StepLog::record(const StepOutcome& outcome, int64_t epoch) {
  const StepResult& result = outcome.figures;
  Progress& progress = job_.progress;
  samples_ += result.samples;
  tokens_ += result.tokens;
  const bool is_due = job_.is_line_due(progress.step) || outcome.decision.is_last;
  if (is_due || job_.device.is_cpu() || std::exchange(is_first_, false)) read_account(job_);
  const StepAccount::Figures& figures = job_.account->figures();
  job_.loggers->on_progress(progress.step, figures.loss);
  if (!is_due) return;
  const Time now = job_.clock();
  StepRecord record;
  record.step = progress.step;
  record.epoch = epoch;
  record.seconds = seconds();
  record.loss = figures.loss;
  record.loss_avg = progress.loss_sum / static_cast<double>(progress.loss_count);
  const std::vector<GroupRates>& rates = job_.rates;
  record.lr = rates[rate_group_].lr;
  for (size_t i = 0; rates.size() > 1 && i < rates.size(); ++i) record.group_lrs.push_back(rates[i].lr);
  record.grad_norm = figures.grad_norm;
  if (job_.grad_scaler) record.loss_scale = job_.grad_scaler->current();
  record.skipped_steps = progress.skipped_steps;
  const std::vector<std::string> names = loss_part_names(job_.recipe, "train");
  for (size_t i = 0; i < names.size(); ++i) record.losses.emplace_back(names[i], figures.parts[i]);
  job_.callbacks->add_figures(record.of_callbacks);
  const double passed = std::chrono::duration<double>(now - last_line_).count();
  record.samples_per_second = static_cast<double>(samples_) / passed;
  if (tokens_ > 0) {
    record.of_callbacks.emplace_back("train/tokens", static_cast<double>(progress.tokens));
    record.of_callbacks.emplace_back("train/tokens_per_second", static_cast<double>(tokens_) / passed);
  }
  if (const auto part = utilization_.of(samples_, tokens_, passed))
    record.of_callbacks.emplace_back("train/mfu", *part);
  job_.loggers->on_step(record);
  last_line_ = now;
  samples_ = 0;
  tokens_ = 0;
  job_.account->begin_line();
}

}  // namespace trainrun
