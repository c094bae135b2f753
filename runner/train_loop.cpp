#include "runner/train_loop.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/tensor.h>

#include <cctype>
#include <chrono>
#include <cmath>
#include <csignal>

#include "registry/figure_name.h"
#include "runner/device.h"
#include "runner/gradients.h"
#include "runner/resources.h"
#include "runner/signals.h"

namespace trainrun {
namespace {

using Clock = std::chrono::steady_clock;

/// "PREFIX/loss/NAME" of each loss, where there are several.
std::vector<std::string> loss_part_names(const Recipe& recipe, const std::string& prefix) {
  if (recipe.loss.size() < 2) return {};
  std::vector<std::string> names = figure_names(recipe.loss);
  for (std::string& name : names)
    name = prefix + "/loss/" + name;  // NOLINT(performance-inefficient-string-concatenation)
  return names;
}

Figures metric_figures(const Recipe& recipe, const std::vector<std::unique_ptr<Metric>>& metrics) {
  const std::vector<std::string> names = figure_names(recipe.metrics);
  Figures figures;
  for (size_t i = 0; i < metrics.size(); ++i) {
    for (const auto& [part, value] : metrics[i]->compute()) {
      figures.emplace_back("eval/" + names[i] + (part.empty() ? "" : "/" + part), value);
    }
  }
  return figures;
}

/// sums += weight * values
void add_weighted(std::vector<double>& sums, const std::vector<at::Tensor>& values, double weight) {
  sums.resize(values.size());
  for (size_t i = 0; i < values.size(); ++i) sums[i] += weight * values[i].item<double>();
}

/// Adds up a step's loss, and its parts, over ranks.
double sum_over_ranks(ProcessGroup& group, double loss, std::vector<double>& parts) {
  std::vector<double> numbers = parts;
  numbers.push_back(loss);
  const at::Tensor sums = at::tensor(numbers, at::kDouble);
  group.sum({sums}, "the loss");
  const auto* values = sums.const_data_ptr<double>();
  std::copy(values, values + parts.size(), parts.begin());
  return values[parts.size()];
}

/// Brings what ranks measured on their samples together.
void merge_over_ranks(ProcessGroup& group, const std::vector<std::unique_ptr<Metric>>& metrics) {
  for (const auto& metric : metrics) {
    std::vector<at::Tensor> sums = metric->sums();
    for (at::Tensor& sum : sums) sum = sum.contiguous().clone();
    group.sum(sums, "evaluation");
    metric->set_sums(sums);
    std::vector<at::Tensor> rows = metric->gathered();
    for (at::Tensor& own : rows) own = group.gather_rows(own.contiguous(), "evaluation");
    metric->set_gathered(rows);
  }
}

/// Parameters that are sharded, and layers that span ranks, need every rank in every forward pass: a rank that has
/// fewer batches than others makes as many passes, of which nothing is counted.
void keep_pace(Model& model, const DataLoader& loader) {
  for (int64_t batch = loader.num_batches(); batch < loader.most_batches(); ++batch) {
    model.forward(loader.surplus_batch());
  }
}

/// Whether something that happens `every` epoch or N steps is due now.
bool is_due(const Every& every, int64_t step, bool epoch_ended) {
  if (!every) return false;
  if (const auto* steps = std::get_if<int64_t>(&*every)) return step % *steps == 0;
  return epoch_ended;
}

std::string numbered(const char* format, int64_t number) {
  char name[32];
  std::snprintf(name, sizeof name, format, static_cast<long long>(number));
  return name;
}

/// Drives a Job: what happens between steps.
class Trainer {
 public:
  explicit Trainer(Job& job) : job_(job), progress_(job.progress), total_steps_(job.total_steps()) {}

  int run() {
    const StopSignals signals;
    job_.model->train();
    saved_step_ = first_step_ = progress_.step;
    start_ = record_time_ = Clock::now();
    seconds_before_ = progress_.seconds;
    while (progress_.step < total_steps_) {
      train_epoch();
      if (signal_ != 0 && progress_.step < total_steps_) return stop(signal_);
    }
    finish();
    return 0;
  }

 private:
  void train_epoch() {
    const auto batches = job_.train_loader->iterate(progress_.epoch, progress_.batch);
    const int64_t num_batches = job_.train_loader->num_batches();
    while (progress_.batch < num_batches && progress_.step < total_steps_) {
      const int64_t first_batch = progress_.batch;
      const double loss = train_step(job_, *batches);
      const bool epoch_ended = progress_.batch == num_batches;
      const int64_t epoch = progress_.epoch;
      record(loss, first_batch, epoch);
      if (epoch_ended) ++progress_.epoch, progress_.batch = 0;
      between_steps(epoch, epoch_ended);
      signal_ = agreed_signal(job_);
      if (epoch_ended || signal_ != 0) return;
    }
  }

  /// Keeps account of a finished step, and reports it when a line is due.
  void record(double loss, int64_t first_batch, int64_t epoch) {
    for (int64_t batch = first_batch; batch < progress_.batch; ++batch) {
      samples_ += job_.train_loader->global_batch_size(batch);
    }
    progress_.loss_sum += loss;
    ++progress_.loss_count;
    job_.observers->on_progress(progress_.step, loss);
    if (progress_.step % job_.recipe.logging.every_steps != 0 && progress_.step != total_steps_) return;
    const auto now = Clock::now();
    StepRecord record;
    record.step = progress_.step;
    record.epoch = epoch;
    record.seconds = seconds(now);
    record.loss = loss;
    record.loss_avg = progress_.loss_sum / static_cast<double>(progress_.loss_count);
    record.lr = job_.optimizer->rates[0].lr;
    record.grad_norm = job_.grad_norm;
    if (job_.grad_scaler) record.loss_scale = job_.grad_scaler->current();
    record.skipped_steps = progress_.skipped_steps;
    const std::vector<std::string> names = loss_part_names(job_.recipe, "train");
    for (size_t i = 0; i < names.size(); ++i) record.losses.emplace_back(names[i], job_.loss_parts[i]);
    record.samples_per_second =
        static_cast<double>(samples_) / std::chrono::duration<double>(now - record_time_).count();
    job_.observers->on_step(record);
    record_time_ = now;
    samples_ = 0;
    progress_.loss_sum = 0;
    progress_.loss_count = 0;
  }

  void between_steps(int64_t epoch, bool epoch_ended) {
    const bool last = progress_.step == total_steps_;
    bool best = false;
    if (job_.eval_loader && job_.recipe.evaluation.every &&
        (last || is_due(job_.recipe.evaluation.every, progress_.step, epoch_ended))) {
      best = run_evaluation(epoch);
    }
    const Every& every = job_.recipe.checkpoint.every;
    if (every && (last || best || is_due(every, progress_.step, epoch_ended))) save(epoch_ended, best);
  }

  /// Returns whether this is the best so far.
  bool run_evaluation(int64_t epoch) {
    if (job_.group) job_.group->set_step(progress_.step);
    const PhaseScope phase(job_.group.get(), Phase::kEvaluation);
    if (job_.parallel) job_.parallel->share_buffers();
    progress_.metrics = evaluate(job_.recipe, *job_.model, *job_.eval_loader, job_.metrics, job_.group.get());
    job_.model->train();
    const auto now = Clock::now();
    job_.observers->on_evaluation({progress_.step, epoch, seconds(now), progress_.metrics});
    record_time_ += Clock::now() - now;
    const auto value = [&](const std::string& name) -> std::optional<double> {
      for (const auto& [known, figure] : progress_.metrics) {
        if (known == name) return figure;
      }
      return std::nullopt;
    };
    if (job_.scheduler && !job_.scheduler->monitor().empty()) {
      if (const auto watched = value(job_.scheduler->monitor())) job_.scheduler->observe(*watched);
    }
    const auto& keep_best = job_.recipe.checkpoint.keep_best;
    const auto watched = keep_best ? value(keep_best->monitor) : std::nullopt;
    if (!watched || !std::isfinite(*watched)) return false;
    const bool better =
        !progress_.best || (keep_best->mode == "min" ? *watched < *progress_.best : *watched > *progress_.best);
    if (better) progress_.best = watched;
    return better;
  }

  void save(bool epoch_ended, bool best) {
    progress_.seconds = seconds(Clock::now());
    const std::string name =
        epoch_ended ? numbered("epoch-%04lld", progress_.epoch) : numbered("step-%08lld", progress_.step);
    job_.save(name, best);
    saved_step_ = progress_.step;
  }

  int stop(int signal) {
    if (job_.recipe.checkpoint.every && saved_step_ != progress_.step) save(progress_.batch == 0, false);
    const std::string reason = signal == SIGINT ? "SIGINT" : "SIGTERM";
    job_.observers->on_end({progress_.step, seconds(Clock::now()), reason, progress_.metrics});
    return signal;
  }

  void finish() {
    const double took = seconds(Clock::now());
    nlohmann::json figures = nlohmann::json::object();
    for (const auto& [name, value] : progress_.metrics) figures[name] = value;
    nlohmann::json summary = {{"step", progress_.step},
                              {"seconds", took},
                              {"metrics", figures},
                              {"ranks", resources_of_ranks(job_, progress_.step - first_step_)}};
    if (!job_.device.is_cpu()) summary["peak_gpu_memory"] = peak_memory(job_.device);  // bytes, of this process
    if (job_.is_main()) job_.folder->finish(summary.dump(2) + "\n");
    if (job_.group) job_.group->barrier("the end");
    job_.observers->on_end({progress_.step, took, "", progress_.metrics});
  }

  double seconds(Clock::time_point now) const {
    return seconds_before_ + std::chrono::duration<double>(now - start_).count();
  }

  Job& job_;
  Progress& progress_;
  int64_t total_steps_;
  int64_t samples_ = 0;      // since the last line
  int signal_ = 0;           // to stop
  int64_t saved_step_ = -1;  // of the newest checkpoint
  int64_t first_step_ = 0;   // that this process began with
  Clock::time_point start_;
  Clock::time_point record_time_;
  double seconds_before_ = 0;
};

}  // namespace

int train(Job& job) {
  try {
    return Trainer(job).run();
  } catch (const std::exception& error) {
    job.observers->on_end(
        {job.progress.step, job.progress.seconds, std::string("error: ") + error.what(), job.progress.metrics});
    throw;
  }
}

int agreed_signal(Job& job) {
  const int own = StopSignals::received();
  if (!job.group) return own;
  job.group->set_step(job.progress.step);
  return static_cast<int>(job.group->max(own, "the end of the step"));
}

double train_step(Job& job, BatchStream& batches) {
  Progress& progress = job.progress;
  const DataLoader& loader = *job.train_loader;
  const int64_t window =
      std::min(job.recipe.training.gradient_accumulation_steps, loader.num_batches() - progress.batch);
  int64_t window_samples = 0;
  for (int64_t i = 0; i < window; ++i) window_samples += loader.global_batch_size(progress.batch + i);
  std::vector<Batch> kept;
  for (int64_t i = 0; i < window; ++i) kept.push_back(std::move(*batches.next()));
  bool finite = true;  // the gradients; where the loss is scaled
  const auto compute_gradients = [&] {
    double mean_loss = 0;
    job.loss_parts.clear();
    reset_gradients(job.parameters);
    for (const Batch& batch : kept) {
      const bool synchronize = &batch == &kept.back();  // before it, gradients add up on each rank
      if (job.parallel) job.parallel->prepare_forward(synchronize);
      const LossValue losses = job.model->loss(batch, job.model->forward(batch));
      at::Tensor loss = losses.total;
      const double weight = static_cast<double>(batch.size()) / static_cast<double>(window_samples);
      const auto value = loss.item<double>();
      if (!std::isfinite(value)) {
        throw TrainingError("the loss is " + std::to_string(value) + " at step " + std::to_string(progress.step + 1) +
                            ", epoch " + std::to_string(progress.epoch) + ", batch " +
                            std::to_string(progress.batch + (&batch - kept.data())) +
                            "; try a lower learning rate, max_grad_norm, or look for bad values in the data");
      }
      mean_loss += weight * value;
      add_weighted(job.loss_parts, losses.parts, weight);
      const double factor = weight * static_cast<double>(job.world_size());  // DataParallel takes the mean over ranks
      if (factor != 1) loss = loss * factor;
      if (job.grad_scaler) loss = job.grad_scaler->scale(loss);
      if (job.parallel) {
        job.parallel->prepare_backward(synchronize, loss);
        job.group->guarded("a backward pass", [&] { loss.backward(); });
        job.parallel->finish_backward(synchronize);
      } else {
        loss.backward();
      }
    }
    if (job.group) mean_loss = sum_over_ranks(*job.group, mean_loss, job.loss_parts);
    if (job.grad_scaler) finite = job.grad_scaler->unscale(job.parameters, job.shards());
    job.grad_norm.reset();
    if (job.recipe.training.max_grad_norm && finite) {
      job.grad_norm = clip_gradients(job.parameters, *job.recipe.training.max_grad_norm, job.shards());
    }
    return mean_loss;
  };
  job.set_rates();
  const double loss = compute_gradients();
  bool known = true;  // who asks for the loss where the weights are still the same gets this one
  const auto closure = [&] {
    if (std::exchange(known, false)) return at::scalar_tensor(loss, at::kDouble);
    if (job.grad_scaler) {
      throw TrainingError(job.recipe.optimizer.type +
                          " looks at a batch more than once, which a scaled loss is not made for; write "
                          "mixed_precision: bf16 or 'no'");
    }
    return at::scalar_tensor(compute_gradients(), at::kDouble);
  };
  if (finite) {
    job.optimizer->step(closure);
  } else {
    ++progress.skipped_steps;
  }
  if (job.grad_scaler) job.grad_scaler->update();
  progress.batch += window;
  ++progress.step;
  return loss;
}

Figures evaluate(const Recipe& recipe, Model& model, const DataLoader& loader,
                 const std::vector<std::unique_ptr<Metric>>& metrics, ProcessGroup* group) {
  const at::NoGradGuard no_gradients;
  model.train(false);
  for (const auto& metric : metrics) metric->reset();
  double loss_sum = 0;
  std::vector<double> part_sums;
  int64_t samples = 0;
  const auto batches = loader.iterate(0);
  while (const auto batch = batches->next()) {
    const Tensors outputs = model.forward(*batch);
    const LossValue loss = model.loss(*batch, outputs);
    const auto size = static_cast<double>(batch->size());
    loss_sum += loss.total.item<double>() * size;
    add_weighted(part_sums, loss.parts, size);
    samples += batch->size();
    for (size_t i = 0; i < metrics.size(); ++i) metrics[i]->update(model.metric_inputs(i, *batch, outputs));
  }
  auto count = static_cast<double>(samples);
  if (group) {
    keep_pace(model, loader);
    part_sums.resize(recipe.loss.size() > 1 ? recipe.loss.size() : 0);  // of a rank without samples
    part_sums.push_back(count);
    loss_sum = sum_over_ranks(*group, loss_sum, part_sums);
    count = part_sums.back();
    part_sums.pop_back();
    merge_over_ranks(*group, metrics);
  }
  Figures figures = {{"eval/loss", loss_sum / count}};
  const std::vector<std::string> names = loss_part_names(recipe, "eval");
  for (size_t i = 0; i < names.size(); ++i) figures.emplace_back(names[i], part_sums[i] / count);
  const Figures measured = metric_figures(recipe, metrics);
  figures.insert(figures.end(), measured.begin(), measured.end());
  return figures;
}

std::vector<std::string> evaluation_names(const Recipe& recipe, const std::vector<std::unique_ptr<Metric>>& metrics) {
  std::vector<std::string> names = {"eval/loss"};
  const std::vector<std::string> parts = loss_part_names(recipe, "eval");
  names.insert(names.end(), parts.begin(), parts.end());
  for (const auto& [name, value] : metric_figures(recipe, metrics)) names.push_back(name);
  return names;
}

}  // namespace trainrun
