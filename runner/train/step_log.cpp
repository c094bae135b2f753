#include "runner/train/step_log.h"

#include <algorithm>

#include "runner/model/figures.h"

namespace trainrun {

size_t leading_group(const std::vector<GroupRates>& rates) {
  const auto learns = [](const GroupRates& group) { return group.lr != 0 && group.lr_scale != 0; };
  const auto first = std::find_if(rates.begin(), rates.end(), learns);
  return first == rates.end() ? 0 : static_cast<size_t>(first - rates.begin());
}

StepLog::StepLog(Job& job)
    : job_(job),
      rate_group_(leading_group(job.optimizer->rates)),
      start_(job.clock()),
      seconds_before_(job.progress.seconds),
      last_line_(start_) {}

double StepLog::seconds() const {
  return seconds_before_ + std::chrono::duration<double>(job_.clock() - start_).count();
}

void StepLog::record(double loss, int64_t epoch, int64_t first_batch, bool is_last) {
  Progress& progress = job_.progress;
  const int64_t end_batch = progress.batch;
  for (int64_t batch = first_batch; batch < end_batch; ++batch) samples_ += job_.train_loader->global_batch_size(batch);
  progress.loss_sum += loss;
  ++progress.loss_count;
  job_.observers->on_progress(progress.step, loss);
  if (progress.step % job_.recipe.logging.every_steps != 0 && !is_last) return;
  const Time now = job_.clock();
  StepRecord record;
  record.step = progress.step;
  record.epoch = epoch;
  record.seconds = seconds();
  record.loss = loss;
  record.loss_avg = progress.loss_sum / static_cast<double>(progress.loss_count);
  const std::vector<GroupRates>& rates = job_.optimizer->rates;
  record.lr = rates[rate_group_].lr;
  for (size_t i = 0; rates.size() > 1 && i < rates.size(); ++i) record.group_lrs.push_back(rates[i].lr);
  record.grad_norm = job_.grad_norm;
  if (job_.grad_scaler) record.loss_scale = job_.grad_scaler->current();
  record.skipped_steps = progress.skipped_steps;
  const std::vector<std::string> names = loss_part_names(job_.recipe, "train");
  for (size_t i = 0; i < names.size(); ++i) record.losses.emplace_back(names[i], job_.loss_parts[i]);
  record.samples_per_second = static_cast<double>(samples_) / std::chrono::duration<double>(now - last_line_).count();
  job_.observers->on_step(record);
  last_line_ = now;
  samples_ = 0;
  progress.loss_sum = 0;
  progress.loss_count = 0;
}

}  // namespace trainrun
