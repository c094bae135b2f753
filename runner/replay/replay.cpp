#include "runner/replay/replay.h"

#include <cmath>

#include "registry/kinds/dataset_facts.h"
#include "registry/language/text_forms.h"
#include "runner/train/training_error.h"

namespace trainrun {
namespace {

/// "train.csv:17:price" without the column, which is that of the whole row; "" where the data name no file.
std::string place_of(const DatasetFacts& facts, int64_t number, const std::string& field) {
  std::string place = facts.place(number, field);
  const std::string called = facts.field(field).called;
  for (const std::string& column : {called, field}) {
    if (column.empty() || !place.ends_with(":" + column)) continue;
    place.resize(place.size() - column.size() - 1);
    break;
  }
  return place == "sample " + std::to_string(number) ? "" : place;
}

void name_samples(const Job& job, StepReplay& replay) {
  const DatasetFacts facts = job.train_data->facts();
  const std::string field = job.train_data->info().target;
  for (const int64_t number : replay.step.samples) replay.samples.push_back({number, place_of(facts, number, field)});
}

}  // namespace

std::optional<bool> StepReplay::is_as_logged() const {
  if (!logged) return std::nullopt;
  return *logged == step.loss || (std::isnan(*logged) && !std::isfinite(step.loss));
}

StepReplay replay_step(ReplayedRun& run, int64_t step) {
  StepReplay replay;
  replay.run = run.path();
  replay.from = run.state_before(step);
  const std::unique_ptr<Job> job = run.stand_at(replay.from);
  if (step > job->total_steps()) {
    throw Error(run.path() + " has " + counted(job->total_steps(), "step", "steps") + ": there is no step " +
                std::to_string(step));
  }
  StepRecorder recorder(*job, StepRecorder::Keep::kFigures);
  if (replay.from.step == step - 1) recorder.arm();
  bool is_made = false;
  try {
    make_steps(*job, [&](const StepOutcome& outcome) {
      if (job->progress.step == step - 1) recorder.arm();
      if (job->progress.step < step) return false;
      replay.step = recorder.take(outcome);
      is_made = true;
      return true;
    });
  } catch (const NonFiniteNumbers&) {  // what this is for
    if (job->progress.step != step - 1) throw;
    replay.step = recorder.take_unfinished();
    is_made = true;
  }
  if (!is_made) {
    throw Error(run.path() + " ended after step " + std::to_string(job->progress.step) + " (" + job->progress.stopped +
                "): there is no step " + std::to_string(step));
  }
  replay.batch_size = job->train_loader->full_batch_size();
  replay.logged = run.logged_loss(step);
  name_samples(*job, replay);
  replay.notes = run.notes();
  return replay;
}

std::string not_finite_text(const RecordedStep& step) {
  const RecordedItem* item = first_not_finite(step);
  if (!item) return "nothing";
  std::string text = item->to_string() +
                     " is the first that is not finite: " + std::to_string(item->figures.not_finite) + " of " +
                     counted(item->figures.elements, "number", "numbers");
  if (item->input.defined()) text += "; its input lies " + figures_of(item->input).range_text();
  return text;
}

}  // namespace trainrun
