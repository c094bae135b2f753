#include "runner/train/job_notes.h"

#include "runner/model/data_checks.h"
#include "runner/model/index_checks.h"
#include "runner/model/model.h"

namespace trainrun {
namespace {

/// An integer among a component's parameters; 0 where there is none.
int64_t whole_number_in(const nlohmann::json& attributes, const char* name) {
  const auto found = attributes.find(name);
  return found != attributes.end() && found->is_number_integer() ? found->get<int64_t>() : 0;
}

std::string steps_text(int64_t steps) { return std::to_string(steps) + (steps == 1 ? " step" : " steps"); }

/// Of a scheduler: how many steps, or epochs, its rate rises, whatever the length of the job; 0: it does not.
int64_t rise_of(const Component<SchedulerKind>& scheduler) {
  const nlohmann::json& attributes = scheduler.attributes;
  if (scheduler.type != "LinearLR") return whole_number_in(attributes, "warmup_steps");
  const bool rises = attributes.at("start_factor").get<double>() < attributes.at("end_factor").get<double>();
  return rises ? whole_number_in(attributes, "total_iters") : 0;
}

void note_schedule(const Recipe& recipe, const JobLength& job, std::vector<std::string>& notes) {
  if (!recipe.scheduler) return;
  const Component<SchedulerKind>& scheduler = *recipe.scheduler;
  const bool by_epochs = scheduler.common.interval == Interval::kEpoch;
  const int64_t total = job.total_steps;
  const int64_t in_epoch = job.steps_per_epoch;
  if (by_epochs && total < in_epoch) {
    notes.push_back("scheduler: " + scheduler.type + " counts epochs, but the job ends after " + steps_text(total) +
                    " of the first epoch's " + std::to_string(in_epoch) +
                    ", so that the rate never changes; write interval: step");
    return;
  }
  const int64_t rise = rise_of(scheduler);
  const int64_t length = by_epochs ? (total + in_epoch - 1) / in_epoch : total;
  if (rise == 0 || rise < length) return;
  const std::string unit = by_epochs ? " epochs" : " steps";
  notes.push_back("scheduler: the rate of " + scheduler.type + " rises for " + std::to_string(rise) + unit +
                  ", but the job has " + std::to_string(length) + ", so that it never reaches optimizer.lr");
}

void note_averages(const Recipe& recipe, const JobLength& job, std::vector<std::string>& notes) {
  for (const Component<CallbackKind>& callback : recipe.callbacks) {
    const int64_t start = whole_number_in(callback.attributes, "start_step");
    if (start <= job.total_steps) continue;
    notes.push_back(callback.path + ": " + callback.type + " begins at step " + std::to_string(start) +
                    ", but the job has " + steps_text(job.total_steps) + ", so that it never does anything");
  }
}

bool packs(const Value& dataset) {
  const Value* packing = dataset.find("packing");
  if (packing && packing->is_scalar() && packing->text() == "true") return true;
  for (const Value& item : dataset.items()) {
    if (packs(item)) return true;
  }
  for (const Value::Entry& entry : dataset.entries()) {
    if (packs(entry.value)) return true;
  }
  return false;
}

void note_packing(const Recipe& recipe, const Dataset& data, const JobLength& job, std::vector<std::string>& notes) {
  constexpr int64_t kHandful = 10;
  const int64_t total = job.total_steps;
  const bool is_asked = recipe.training.max_steps == total;
  if (total >= kHandful || is_asked || !packs(recipe.dataset.train.written)) return;
  notes.push_back(recipe.dataset.train.path + ": packing leaves " + std::to_string(data.size()) +
                  " samples, and the job has " + steps_text(total) +
                  ", in which hardly anything can be learnt; write packing: false, a smaller batch_size or max_length, "
                  "or more epochs");
}

}  // namespace

std::vector<std::string> job_notes(const Recipe& recipe, const Graph& graph, const Dataset& data,
                                   const DataLoader::Transforms& transforms, const JobLength& length) {
  std::vector<std::string> notes = scale_warnings(recipe, graph, data, transforms);
  for (const Problem& surplus : surplus_outputs(recipe, graph, training_info(recipe), data)) {
    notes.push_back(surplus.to_string());
  }
  for (std::string& note : target_warnings(recipe, training_info(recipe), data, transforms)) {
    notes.push_back(std::move(note));
  }
  note_schedule(recipe, length, notes);
  note_averages(recipe, length, notes);
  note_packing(recipe, data, length, notes);
  return notes;
}

}  // namespace trainrun
