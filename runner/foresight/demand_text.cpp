#include <algorithm>
#include <cmath>

#include "runner/base/text.h"
#include "runner/foresight/demand.h"

namespace trainrun {
namespace {

using nlohmann::ordered_json;

constexpr size_t kDemandWidth = 100;
constexpr double kPercent = 100;

std::string bytes_of(int64_t bytes) { return bytes_text(static_cast<double>(std::max<int64_t>(bytes, 0))); }

std::string sizes_text(const Demand& demand) {
  std::vector<std::string> sizes;
  for (const int64_t size : demand.sizes) sizes.push_back(std::to_string(size));
  return join(sizes);
}

std::string peak_text(const Demand& demand) {
  const Rehearsal& r = demand.rehearsal;
  std::string text = bytes_of(demand.peak_bytes) + (r.on_gpu ? " of the GPU's memory" : "") + " at most";
  if (demand.processes > 1) text += ", of " + std::to_string(demand.processes) + " processes";
  if (demand.is_extrapolated) {
    return text + ": extrapolated from batches of " + sizes_text(demand) +
           ", since the recipe's own do not fit into the memory that is free here";
  }
  return text + ": measured over " + grouped(r.steps) + " steps" + (r.evaluated_batches > 0 ? ", an evaluation" : "") +
         (r.write_seconds > 0 ? ", a checkpoint" : "");
}

std::string seconds_text(const Demand& demand) {
  const Rehearsal& r = demand.rehearsal;
  if (!demand.seconds) return "unknown: neither steps nor time have an end";
  std::string text = duration(*demand.seconds);
  if (r.total_steps) text += ": " + grouped(*r.total_steps) + " steps of " + short_duration(r.step_seconds);
  if (r.evaluations > 0)
    text += ", " + grouped(r.evaluations) + " evaluations of " + short_duration(r.evaluation_seconds);
  if (demand.checkpoint_part > 0) text += ", " + short_duration(demand.checkpoint_part) + " for checkpoints";
  text += ", " + short_duration(r.start_seconds) + " to start";
  if (r.folds > 1) {
    text += "; all of that for each of " + std::to_string(r.folds) + " folds, but of the start only " +
            short_duration(r.build_seconds);
  }
  return text;
}

void add_verdict(TextTable& facts, const std::string& name, const LimitVerdict& verdict, double share) {
  const std::string percent = share < 1 / kPercent ? "below 1" : grouped(std::llround(kPercent * share));
  facts.add({name, std::string(verdict.holds ? "yes" : "no") + ": " + percent +
                       " % of it; the largest part: " + verdict.most});
  if (!verdict.advice.empty()) {
    std::string overrides;
    for (const std::string& one : verdict.advice) overrides += (overrides.empty() ? "" : " ") + one;
    facts.add({"", "with " + overrides + " it does (" + verdict.remark + ")"});
  } else if (!verdict.remark.empty()) {
    facts.add({"", verdict.remark});
  }
}

/// "batches of 1, 2: left out, since r.yaml:4:45: model.layers[1]: BatchNorm1d cannot normalize …"
std::string skipped_text(const std::vector<SkippedSize>& skipped) {
  std::vector<std::string> sizes;
  for (const SkippedSize& one : skipped) sizes.push_back(std::to_string(one.batch_size));
  return "batches of " + join(sizes) + " were left out, since they cannot be trained: " + skipped.front().why;
}

ordered_json json_of(const std::vector<SkippedSize>& skipped) {
  ordered_json json = ordered_json::array();
  for (const SkippedSize& one : skipped) json.push_back({{"batch_size", one.batch_size}, {"why", one.why}});
  return json;
}

ordered_json json_of(const std::optional<LimitVerdict>& verdict) {
  if (!verdict) return nullptr;
  return {{"holds", verdict->holds}, {"most", verdict->most}, {"advice", verdict->advice}, {"remark", verdict->remark}};
}

}  // namespace

std::string to_text(const Demand& demand, const Explanation& explanation, const DemandLimits& limits) {
  const Rehearsal& r = demand.rehearsal;
  TextTable facts({TextTable::Align::kLeft, TextTable::Align::kLeft});
  facts.add({"memory", peak_text(demand)});
  if (!r.on_gpu) {
    const int64_t data = r.built_bytes - r.program_bytes - explanation.memory.weights;
    facts.add({"", "program " + bytes_of(r.program_bytes) + ", data " + bytes_of(data) + ", weights " +
                       bytes_of(explanation.memory.weights) + ", the rest while it trains"});
  }
  if (limits.wants_time) facts.add({"time", seconds_text(demand)});
  for (const std::string& note : r.notes) facts.add({"", note});
  if (demand.fits) {
    add_verdict(facts, "fits " + bytes_of(*limits.bytes), *demand.fits,
                static_cast<double>(demand.peak_bytes) / static_cast<double>(*limits.bytes));
    if (!demand.skipped.empty()) facts.add({"", skipped_text(demand.skipped)});
  }
  if (demand.within) {
    add_verdict(facts, "within " + duration(*limits.seconds), *demand.within, *demand.seconds / *limits.seconds);
  }
  return "\nrehearsed on this machine\n" + facts.to_string("", kDemandWidth);
}

ordered_json to_json(const Demand& demand) {
  const auto of_time = [&](double part) { return demand.seconds ? ordered_json(part) : ordered_json(); };
  return {{"peak_bytes", demand.peak_bytes},
          {"seconds", demand.seconds ? ordered_json(*demand.seconds) : ordered_json()},
          {"step_seconds", of_time(demand.step_part)},
          {"evaluation_seconds", of_time(demand.evaluation_part)},
          {"checkpoint_seconds", of_time(demand.checkpoint_part)},
          {"processes", demand.processes},
          {"extrapolated", demand.is_extrapolated},
          {"batch_sizes", demand.sizes},
          {"skipped", json_of(demand.skipped)},
          {"rehearsal", to_json(demand.rehearsal)},
          {"fits", json_of(demand.fits)},
          {"within", json_of(demand.within)}};
}

}  // namespace trainrun
