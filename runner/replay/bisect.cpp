#include "runner/replay/bisect.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "registry/kinds/dataset_facts.h"
#include "registry/language/codec.h"
#include "registry/language/text_forms.h"
#include "runner/replay/run_trace.h"
#include "runner/train/training_error.h"

namespace trainrun {
namespace {

using ItemKind = RecordedItem::Kind;

/// Figures that say how fast a run was, and no more.
bool is_of_speed(const std::string& figure) {
  constexpr std::array kOfSpeed = {"train/samples_per_second", "train/tokens_per_second", "train/mfu"};
  return std::ranges::find(kOfSpeed, figure) != kOfSpeed.end();
}

bool is_same(double a, double b) { return a == b || (std::isnan(a) && std::isnan(b)); }

/// How two lines of one step differ; "" where all that both have is equal. `train/loss_avg` is a mean since the line
/// before, which may be of another step.
std::string difference_of_lines(const Figures& a, const Figures& b) {
  const std::map<std::string, double> of_b(b.begin(), b.end());
  for (const auto& [name, value] : a) {
    const auto other = of_b.find(name);
    if (is_of_speed(name) || name == "train/loss_avg" || other == of_b.end() || is_same(value, other->second)) continue;
    return name + " is " + detail::number_text(value) + " and " + detail::number_text(other->second);
  }
  return "";
}

void compare_lines(const ReplayedRun& a, const ReplayedRun& b, RunBisection& found) {
  for (const auto& [step, figures] : a.lines()) {
    const auto other = b.lines().find(step);
    if (other == b.lines().end()) continue;
    found.line_difference = difference_of_lines(figures, other->second);
    if (!found.line_difference.empty()) {
      found.first_other_line = step;
      return;
    }
    found.last_equal_line = step;
  }
}

/// The states of both after one step.
struct CommonState {
  const StoredState* a = nullptr;
  const StoredState* b = nullptr;
};

std::vector<CommonState> common_states(const ReplayedRun& a, const ReplayedRun& b) {
  std::vector<CommonState> common;
  for (const StoredState& of_a : a.states()) {
    for (const StoredState& of_b : b.states()) {
      const bool are_stored = !of_a.path.empty() && !of_b.path.empty();
      if (are_stored && of_a.step == of_b.step) common.push_back({&of_a, &of_b});
    }
  }
  return common;
}

/// Compares the states that both have; the last equal ones before a difference are returned.
CommonState compare_stored(const ReplayedRun& a, const ReplayedRun& b, RunBisection& found,
                           std::optional<StateDifference>& difference) {
  CommonState last;
  for (const CommonState& common : common_states(a, b)) {
    difference = compare_states(CheckpointStore::load(common.a->path), CheckpointStore::load(common.b->path));
    if (difference) {
      found.first_other_state = common.a->step;
      return last;
    }
    found.last_equal_state = common.a->step;
    last = common;
  }
  return last;
}

std::string layer_of(const std::string& parameter) {
  const size_t dot = parameter.rfind('.');
  return dot == std::string::npos ? "" : parameter.substr(0, dot);
}

Parting parting_of_state(Parting::Kind kind, int64_t step, const StateDifference& difference) {
  Parting parting;
  parting.kind = kind;
  parting.step = step;
  parting.what = difference.name;
  parting.name = difference.name;
  if (difference.weights > 0) {
    parting.what = (kind == Parting::Kind::kCheckpoint ? "weight " : "") + difference.name;
    parting.layer = layer_of(difference.name);
  }
  parting.tensor = difference.tensor;
  parting.difference = difference.tensor.to_string();
  parting.remark = difference.counts_text();
  return parting;
}

/// "sample 4 of 32 (number 173, train.csv:175)" for the first row that differs.
std::string sample_text(const TensorDifference& difference, const RecordedStep& step, const RecordedItem& item,
                        const Job& job) {
  if (difference.at.empty()) return "";
  const int64_t size = job.train_loader->full_batch_size();
  const auto row = static_cast<size_t>(difference.at[0]);
  const size_t place = row + static_cast<size_t>(item.batch * size);
  if (place >= step.samples.size()) return "";
  const int64_t number = step.samples[place];
  return "sample " + std::to_string(row + 1) + " of " + std::to_string(item.value.size(0)) + " (number " +
         std::to_string(number) + ", " + job.train_data->facts().place(number, job.train_data->info().target) + "): ";
}

/// The first item in which two records of a step differ.
Parting parting_of_records(const RecordedStep& a, const RecordedStep& b, const Job& job) {
  Parting parting;
  parting.step = a.step;
  for (size_t i = 0; i < std::max(a.items.size(), b.items.size()); ++i) {
    const RecordedItem* of_a = i < a.items.size() ? &a.items[i] : nullptr;
    const RecordedItem* of_b = i < b.items.size() ? &b.items[i] : nullptr;
    const bool is_other = !of_a || !of_b || of_a->kind != of_b->kind || of_a->name != of_b->name ||
                          of_a->type != of_b->type || of_a->batch != of_b->batch;
    if (is_other) {
      parting.what = "what is computed next";
      parting.difference = (of_a ? of_a->to_string() : "nothing") + " and " + (of_b ? of_b->to_string() : "nothing");
      return parting;
    }
    const auto difference = difference_of(of_a->value, of_b->value);
    if (!difference) continue;
    parting.what = of_a->to_string();
    parting.name = of_a->name;
    parting.is_of_rates = of_a->kind == ItemKind::kRates;
    if (of_a->kind == ItemKind::kOutput || of_a->kind == ItemKind::kOutputGradient) parting.layer = of_a->name;
    if (of_a->kind == ItemKind::kParameter || of_a->kind == ItemKind::kBuffer || of_a->kind == ItemKind::kGradient ||
        of_a->kind == ItemKind::kNewParameter || of_a->kind == ItemKind::kNewBuffer) {
      parting.layer = layer_of(of_a->name);
    }
    parting.tensor = difference;
    parting.difference =
        (of_a->kind == ItemKind::kField ? sample_text(*difference, a, *of_a, job) : "") + difference->to_string();
    return parting;
  }
  parting.what = "random numbers";
  parting.difference = "the steps drew other ones, or another number of them";
  return parting;
}

/// Makes one step of a run again and keeps all that it computes.
RecordedStep record_step(Job& job, int64_t step) {
  StepRecorder recorder(job, StepRecorder::Keep::kValues);
  RecordedStep record;
  if (job.progress.step == step - 1) recorder.arm();
  try {
    make_steps(job, [&](const StepOutcome& outcome) {
      if (job.progress.step == step - 1) recorder.arm();
      if (job.progress.step < step) return false;
      record = recorder.take(outcome);
      return true;
    });
  } catch (const NonFiniteNumbers&) {
    record = recorder.take_unfinished();
  }
  return record;
}

/// What the run's own steps say of the run: the first of its stored states or logged losses that they do not give.
Parting parting_of_own(const ReplayedRun& run, const RunTrace::Fault& fault) {
  Parting parting;
  if (fault.state) {
    parting = parting_of_state(Parting::Kind::kCheckpoint, fault.step, *fault.state);
  } else {
    parting.kind = Parting::Kind::kLogged;
    parting.step = fault.step;
    parting.what = "the loss";
    parting.difference =
        detail::number_text(fault.logged) + " was logged, and its steps give " + detail::number_text(fault.replayed);
  }
  parting.run = run.path();
  parting.checkpoint = fault.checkpoint;
  if (!parting.remark.empty()) parting.remark += "; ";
  parting.remark += fault.confirmed > fault.from
                        ? "up to step " + std::to_string(fault.confirmed) + " its steps give what it logged and stored"
                        : "nothing was logged or stored between step " + std::to_string(fault.from) + " and this one";
  parting.remark +=
      ", so it was changed from outside after step " + std::to_string(std::max(fault.confirmed, fault.from));
  if (fault.step > fault.confirmed + 1) parting.remark += ", at step " + std::to_string(fault.step) + " at the latest";
  return parting;
}

/// Steps of both runs that were made again.
struct BothTraces {
  StoredState from_a, from_b;
  RunTrace a, b;
  std::optional<int64_t> step;  // the first that differs
};

/// The first step that differs, made once more.
Parting parting_of_step(ReplayedRun& a, ReplayedRun& b, const BothTraces& traces) {
  RecordedStep record;
  {
    const auto job = a.stand_at(traces.from_a);
    record = record_step(*job, *traces.step);
  }
  const auto job = b.stand_at(traces.from_b);
  return parting_of_records(record, record_step(*job, *traces.step), *job);
}

/// Learning rates that `trainrun ctl` set are the only thing by which its changes make two runs part.
void explain_by_controls(Parting& parting, const std::vector<ControlChange>& controls) {
  if (!parting.is_of_rates) return;
  parting.controls = newest_before(controls, parting.step);
  parting.remark = control_text(parting.controls);
}

/// One run is not what its own steps give before the two differ; nothing where that is not so. `is_unsure`: on another
/// machine the last digits of both would be others, and how the two differ tells more.
std::optional<Parting> parting_of_one(const ReplayedRun& a, const ReplayedRun& b, const BothTraces& traces,
                                      bool is_unsure) {
  const std::optional<RunTrace::Fault>&of_a = traces.a.fault, &of_b = traces.b.fault;
  if (traces.step && is_unsure && of_a && of_b) return std::nullopt;
  const auto is_first = [&](const std::optional<RunTrace::Fault>& fault) {
    return fault && (!traces.step || fault->step < *traces.step);
  };
  if (is_first(of_a) && (!is_first(of_b) || of_a->step <= of_b->step)) return parting_of_own(a, *of_a);
  if (is_first(of_b)) return parting_of_own(b, *of_b);
  return std::nullopt;
}

/// One run begins with a checkpoint that is not the state of the other after that step.
std::optional<Parting> parting_of_beginning(const BothTraces& traces) {
  if (!traces.a.foreign && !traces.b.foreign) return std::nullopt;
  const StoredState& beginning = traces.a.foreign ? traces.from_b : traces.from_a;
  Parting parting = parting_of_state(Parting::Kind::kStates, beginning.step,
                                     traces.a.foreign ? *traces.a.foreign : *traces.b.foreign);
  parting.checkpoint = beginning.path;
  return parting;
}

/// What was logged or stored differs, but nothing that was made again: nobody can tell why.
std::optional<Parting> parting_of_facts(const RunBisection& found, const std::optional<StateDifference>& stored) {
  Parting parting;
  if (stored) {
    parting = parting_of_state(Parting::Kind::kStates, *found.first_other_state, *stored);
    parting.remark += "; the steps of both, made again, are alike";
    return parting;
  }
  if (!found.first_other_line) return std::nullopt;
  parting.kind = Parting::Kind::kStates;
  parting.step = *found.first_other_line;
  parting.what = "the logged figures";
  parting.difference = found.line_difference;
  parting.remark = "the steps of both, made again, are alike";
  return parting;
}

}  // namespace

RunBisection bisect(ReplayedRun& a, ReplayedRun& b) {
  RunBisection found;
  found.a = a.path();
  found.b = b.path();
  for (RecipeChange& change : changes_between(a.loaded().resolved, b.loaded().resolved, true, Lists::kAligned)) {
    if (change.breaks_resume()) found.changes.push_back(std::move(change));
  }
  found.until = std::min(a.last_step(), b.last_step());
  found.controls = changes_of_one(found.a, a.changes(), found.b, b.changes(), found.until);
  compare_lines(a, b, found);
  std::optional<StateDifference> stored;
  const CommonState equal = compare_stored(a, b, found, stored);
  const bool is_seen = found.last_equal_line.value_or(0) > 0 || found.last_equal_state;
  if (is_seen && !found.first_other_line && !found.first_other_state) return found;  // all that both have is equal
  found.replayed_until =
      std::min({found.first_other_line.value_or(INT64_MAX), found.first_other_state.value_or(INT64_MAX), found.until});
  BothTraces traces;
  traces.from_a = equal.a ? *equal.a : a.states()[0];
  traces.from_b = equal.b ? *equal.b : b.states()[0];
  found.replayed_from_a = traces.from_a.step;
  found.replayed_from_b = traces.from_b.step;
  traces.a = trace_run(a, traces.from_a, found.replayed_until, &traces.from_b);
  traces.b = trace_run(b, traces.from_b, found.replayed_until, &traces.from_a);
  traces.step = first_difference(traces.a, traces.b);
  const bool is_unsure = !a.notes().empty() || !b.notes().empty();
  found.parting = parting_of_one(a, b, traces, is_unsure);
  if (found.parting && is_unsure) found.parting->remark += "; unless the notes below explain it";
  if (!found.parting) found.parting = parting_of_beginning(traces);
  if (!found.parting && traces.step) {
    found.parting = parting_of_step(a, b, traces);
    explain_by_controls(*found.parting, found.controls);
  }
  if (!found.parting) found.parting = parting_of_facts(found, stored);
  for (const ReplayedRun* run : {&a, &b}) {
    found.notes.insert(found.notes.end(), run->notes().begin(), run->notes().end());
  }
  return found;
}

}  // namespace trainrun
