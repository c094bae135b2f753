// What a checkpoint keeps of where training stands.
#include <spdlog/spdlog.h>
#include <torch/version.h>

#include <algorithm>

#include "runner/base/arithmetic.h"
#include "runner/device/machine.h"
#include "runner/train/job.h"
#include "runner/train/job_parts.h"
#include "runner/train/run_changes.h"

namespace trainrun {
namespace {

using nlohmann::json;

json figures_json(const std::vector<std::pair<std::string, double>>& figures) {
  json list = json::array();
  for (const auto& [name, value] : figures) list.push_back({name, value});
  return list;
}

json progress_json(const Progress& progress) {
  return {{"step", progress.step},
          {"epoch", progress.epoch},
          {"batch", progress.batch},
          {"seconds", progress.seconds},
          {"seconds_of", {{"evaluations", progress.evaluating}, {"checkpoints", progress.saving}}},
          {"loss_sum", progress.loss_sum},
          {"loss_count", progress.loss_count},
          {"skipped_steps", progress.skipped_steps},
          {"best", progress.best ? json(*progress.best) : json()},
          {"metrics", figures_json(progress.metrics)},
          {"evaluation_due", progress.evaluation_due}};
}

/// Throws CheckpointError for a number below 0.
int64_t count_from(const json& state, const char* key) {
  const json& number = state.at(key);
  const bool fits = number.is_number_integer() && number.get<int64_t>() >= 0;
  if (!fits)
    throw CheckpointError(std::string("state.json: ") + key + " is " + number.dump() + ", expected a number >= 0");
  return number.get<int64_t>();
}

Progress progress_from(const json& state) {
  Progress progress;
  progress.step = count_from(state, "step");
  progress.epoch = count_from(state, "epoch");
  progress.batch = count_from(state, "batch");
  progress.seconds = state.at("seconds");
  const json parts = state.value("seconds_of", json::object());  // older checkpoints lack it
  progress.evaluating = parts.value("evaluations", 0.0);
  progress.saving = parts.value("checkpoints", 0.0);
  progress.loss_sum = state.at("loss_sum");
  progress.loss_count = count_from(state, "loss_count");
  if (state.contains("skipped_steps")) progress.skipped_steps = count_from(state, "skipped_steps");
  if (state.contains("tokens")) progress.tokens = count_from(state, "tokens");
  progress.evaluation_due = state.value("evaluation_due", false);
  if (!state.at("best").is_null()) progress.best = state.at("best").get<double>();
  for (const json& figure : state.at("metrics"))
    progress.metrics.emplace_back(figure.at(0), figure.at(1).get<double>());
  return progress;
}

/// What decides which checkpoint is the best; null: nothing.
json monitor_json(const Recipe& recipe) {
  const auto& keep_best = recipe.checkpoint.keep_best;
  return keep_best ? json{keep_best->monitor, keep_best->mode} : json();
}

/// The batch of an epoch that comes after as many samples as `batch` does, where batches over all ranks had
/// `saved_size` samples and now have another size; at the start of a window of accumulation, so some may come again.
int64_t batch_after_samples(int64_t batch, int64_t saved_size, int64_t size, int64_t window, int64_t num_batches) {
  if (size == saved_size) return batch;
  const int64_t begun = std::min(saturating_product(batch, saved_size) / size, num_batches - 1);
  return begun / window * window;
}

class ProgressPart : public Stateful {
 public:
  explicit ProgressPart(Job& job) : Stateful(kProgressPart), job_(job), machine_(machine_facts()) {}

  json values() override {
    json values = progress_json(job_.progress);
    if (!job_.progress.stopped.empty()) values["stopped"] = job_.progress.stopped;
    if (job_.progress.tokens > 0) values["tokens"] = job_.progress.tokens;
    for (const RunChange& change : job_.progress.changes) values["changes"].push_back(to_json(change));
    values["monitor"] = monitor_json(job_.recipe);
    values["global_batch_size"] = global_batch_size();
    values["seed"] = job_.recipe.seed;
    values["versions"] = {{"trainrun", TRAINRUN_VERSION}, {"torch", TORCH_VERSION}};
    values["machine"] = machine_;
    return values;
  }

  void load(const Snapshot& saved) override {
    job_.progress = progress_from(saved.values);
    if (job_.continues) job_.progress.stopped = saved.values.value("stopped", "");
    load_changes(changes_from(saved.values.value("changes", json::array())));
    find_batch(saved.values);
    tell_versions(saved.values.value("versions", json::object()));
    const json monitor = monitor_json(job_.recipe);
    if (saved.values.value("monitor", monitor) != monitor) {
      spdlog::info("checkpoint.keep_best monitors another figure than before: the best value so far is discarded");
      job_.progress.best.reset();
    }
  }

 private:
  /// Another run has its own recipe, and not what was changed in this one.
  void load_changes(const std::vector<RunChange>& changes) {
    for (const RunChange& change : changes) {
      if (!job_.continues) {
        spdlog::info("{}={}, a change by trainrun ctl in the run of the checkpoint, is not made in this one",
                     change.key, change.value);
        continue;
      }
      spdlog::info(apply_change(job_, change));
      job_.progress.changes.push_back(change);
    }
  }

  static void tell_versions(const json& versions) {
    const std::string saved = versions.value("torch", TORCH_VERSION);
    if (saved == TORCH_VERSION) return;
    spdlog::info("the checkpoint was made with LibTorch {}, this is {}: numbers may differ in their last digits", saved,
                 TORCH_VERSION);
  }

  int64_t global_batch_size() const { return saturating_product(job_.recipe.dataloader.batch_size, job_.world_size()); }

  void find_batch(const json& state) {
    Progress& progress = job_.progress;
    const auto num_ranks = static_cast<int64_t>(state.at("random").size());
    const int64_t size = global_batch_size();
    const int64_t saved_size =
        state.value("global_batch_size", saturating_product(job_.recipe.dataloader.batch_size, num_ranks));
    if (saved_size < 1) throw CheckpointError("state.json: global_batch_size is " + std::to_string(saved_size));
    const int64_t num_batches = job_.train_loader->num_batches();
    progress.batch = batch_after_samples(progress.batch, saved_size, size,
                                         job_.recipe.training.gradient_accumulation_steps, num_batches);
    if (size != saved_size) {
      spdlog::info("the checkpoint is of batches of {} samples over {} ranks, now it is {} over {}", saved_size,
                   num_ranks, size, job_.world_size());
    }
    if (progress.batch >= num_batches) {  // the data have become fewer: of this epoch nothing is left
      ++progress.epoch;
      progress.batch = 0;
    }
  }

  Job& job_;
  json machine_;
};

}  // namespace

void add_progress_part(Job& job, Parts& parts) { parts.push_back(std::make_unique<ProgressPart>(job)); }

}  // namespace trainrun
