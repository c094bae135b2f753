// How a job takes its folder, saves its state there and goes on from it.
#include <spdlog/spdlog.h>

#include "runner/base/signals.h"
#include "runner/process/block_allocator.h"
#include "runner/run/checkpoint_state.h"
#include "runner/run/recipe_file.h"
#include "runner/run/resume_path.h"
#include "runner/train/job.h"
#include "runner/train/job_parts.h"
#include "runner/train/random_states.h"
#include "runner/train/run_change.h"

namespace trainrun {

void Job::open_folder(const LoadedRecipe& loaded) {
  const bool evaluation_counts = scheduler && !scheduler->monitor().empty();
  folder = std::make_unique<RunFolder>(open_run_folder(loaded, evaluation_counts));
  RetentionPolicy policy;
  policy.keep_last = recipe.checkpoint.keep_last.value_or(0);
  policy.keep_best = recipe.checkpoint.keep_best.has_value();
  const auto when =
      recipe.checkpoint.background ? CheckpointWriter::When::kInBackground : CheckpointWriter::When::kAtOnce;
  const auto on_written = [this](int64_t step, const std::string& path) {
    StopSignals::note_saved(step);
    loggers->on_checkpoint({step, path});
    if (shards()) return_free_memory();
  };
  checkpoints =
      std::make_unique<CheckpointWriter>(CheckpointStore(folder->checkpoints_path(), policy), when,
                                         CheckpointWriter::Events{on_written, [this] { return restore_folder(); }});
}

Snapshots Job::capture(Copies copies) {
  Snapshots snapshots;
  for (const auto& part : parts_) snapshots[part->name()] = {part->tensors(), part->values()};
  if (copies == Copies::kOwn && is_main()) make_own(snapshots);
  return snapshots;
}

void Job::save(const std::string& name, bool best) {
  group->set_step(progress.step);
  const PhaseScope phase(*group, Phase::kCheckpoint);
  const bool in_background = recipe.checkpoint.background;
  if (is_main()) checkpoints->finish();  // of the copies of the state, there is one at a time
  {
    Snapshots snapshots = capture(Copies::kShared);
    const std::chrono::duration<double> between = clock() - saved_at_;
    const bool is_own = is_main() && in_background && is_worth_own(snapshots, between.count());
    if (is_own) make_own(snapshots);
    CheckpointContent content = content_of(snapshots);
    snapshots.clear();
    if (is_main()) {
      restore_folder();
      checkpoints->save(name, std::move(content), best);
      if (!is_own) checkpoints->finish_writing();
    }
    group->barrier("a checkpoint");
  }
  saved_at_ = clock();
  const std::optional<int64_t> before = std::exchange(saving_step_, progress.step);
  if (const auto written = in_background ? before : saving_step_) StopSignals::note_saved(*written);
  if (shards()) return_free_memory();
}

void Job::heed_writer() {
  if (checkpoints) checkpoints->heed();
}

void Job::finish_saving() {
  if (!recipe.checkpoint.background) return;
  const PhaseScope phase(*group, Phase::kCheckpoint);
  if (checkpoints) checkpoints->finish();
  group->barrier("a checkpoint");
  if (saving_step_) StopSignals::note_saved(*saving_step_);
}

void Job::amend(const std::string& name, bool best) {
  const PhaseScope phase(*group, Phase::kCheckpoint);
  Snapshots values;
  for (const auto& part : parts_) values[part->name()] = {{}, part->values()};
  if (is_main()) checkpoints->amend(name, content_of(values).state, best);
  group->barrier("a checkpoint");
}

Tensors Job::random_states() const {
  Tensors states;
  for (const at::Device& source : random_sources(device)) states.push_back(random_state(source));
  return states;
}

void Job::set_random_states(const Tensors& states) const {
  const std::vector<at::Device> sources = random_sources(device);
  for (size_t i = 0; i < sources.size(); ++i) set_random_state(sources[i], states[i]);
}

bool Job::restore_folder() {
  if (!folder->make_whole()) return false;
  start_log(folder->log_path(), quiet_, verbose_, folder->is_private());
  spdlog::warn("{} was removed or renamed during the run: it is created again, without its former content",
               folder->path());
  return true;
}

std::optional<std::string> Job::checkpoint_to_resume() {
  std::optional<std::string> from;
  const auto warn = [](const std::string& text) { spdlog::warn(text); };
  if (folder->continues()) from = checkpoints->store().newest(warn);
  const std::string& wanted = recipe.checkpoint.resume;
  if (!from && wanted != "auto" && wanted != "no") from = checkpoint_to_go_on_from(wanted, warn);
  return from;
}

void Job::resume() {
  std::string from = is_main() ? checkpoint_to_resume().value_or("") : "";
  continues = is_main() && folder->continues();
  from = group->share_text(from, "the checkpoint to go on from");
  continues = group->max(continues ? 1 : 0, "the checkpoint to go on from") > 0;
  if (from.empty() && !missing_.empty()) throw RecipeError(missing_);
  if (!missing_.empty()) {
    spdlog::info("the initial weights are not there any more, nor needed: all weights come from the checkpoint");
  }
  if (!from.empty()) restore(from);
  take_later_changes();
  if (is_main() && folder->continues()) {
    folder->keep_changes();
    truncate_metrics(folder->metrics_path(), progress.step, progress.evaluation_due);
  }
}

void Job::take_later_changes() {
  if (!continues) return;
  nlohmann::json later = nlohmann::json::array();
  if (is_main()) {
    for (const RunChange& change : trainrun::later_changes(folder->path(), progress.step))
      later.push_back(to_json(change));
  }
  later_changes = changes_from(nlohmann::json::parse(group->share_text(later.dump(), "changes by trainrun ctl")));
  for (const RunChange& change : later_changes) {
    spdlog::info(
        "{}={} comes again after step {}, as trainrun ctl made it; delete its line in {}/recipe_history.jsonl "
        "if it should not",
        change.key, change.value, change.step, folder->path());
  }
}

void Job::restore(const std::string& from) {
  const auto refuse = [&](const std::string& why) {
    return CheckpointError(from + " does not hold the state of this job: " + why.substr(0, why.find('\n')));
  };
  std::vector<std::string> names;
  for (const auto& part : parts_) names.push_back(part->name());
  const Snapshots saved = parts_of(CheckpointStore::load(from), names);
  try {
    for (const auto& part : parts_) {
      const auto own = saved.find(part->name());
      part->load(own == saved.end() ? Snapshot() : own->second);
    }
  } catch (const nlohmann::json::exception& error) {
    throw refuse(plain_message(error));
  } catch (const c10::Error& error) {
    throw refuse(error.what_without_backtrace());
  }
  check_what_is_left(from);
}

void Job::check_data(const nlohmann::json& state) {
  for (const auto& part : parts_) {
    const auto saved = state.find(part->name());
    if (part->name() == kDataPart && saved != state.end()) part->load({{}, *saved});
  }
}

void Job::check_what_is_left(const std::string& from) const {
  if (progress.step < total_steps()) return;
  const TrainingSection& training = recipe.training;
  const std::string at =
      from + " is of step " + std::to_string(progress.step) + ", epoch " + std::to_string(progress.epoch);
  const bool beyond = progress.step > training.max_steps.value_or(INT64_MAX) ||
                      progress.epoch > training.num_epochs.value_or(INT64_MAX);
  if (beyond) {
    throw Error(at + ", beyond the length that the recipe asks for (" +
                (progress.step > training.max_steps.value_or(INT64_MAX)
                     ? "training.max_steps: " + std::to_string(*training.max_steps)
                     : "training.num_epochs: " + std::to_string(*training.num_epochs)) +
                "): nothing is left to train; ask for more, or write checkpoint.resume=no to start from the beginning");
  }
  if (progress.evaluation_due) return;
  spdlog::warn("{}, the last one that the recipe asks for: nothing is left to train", at);
}

}  // namespace trainrun
