#include <algorithm>
#include <cmath>

#include "runner/base/text.h"
#include "runner/foresight/scaling.h"

namespace trainrun {
namespace {

using nlohmann::ordered_json;
using Align = TextTable::Align;

constexpr size_t kTextWidth = 100;
constexpr size_t kMostSamples = 8;  // that are shown by number
constexpr double kMicro = 1e6;
constexpr double kGiga = 1e9;

std::string text_of_bytes(int64_t bytes) { return trainrun::bytes_text(static_cast<double>(bytes)); }

std::string shared_text(const ScalePlan& plan) {
  switch (plan.stage) {
    case 1:
      return "each rank keeps its part of the optimizer state";
    case 2:
      return "each rank keeps its part of gradients and optimizer state";
    case 3:
      return "each rank keeps its part of parameters, gradients and optimizer state";
    default:
      return "every rank has the whole model";
  }
}

std::string headline(const ScalePlan& plan) {
  const int64_t ranks = plan.options.world_size;
  return plan.name + " (" + plan.path + ")\n" + grouped(ranks) + (ranks == 1 ? " rank, " : " ranks, ") +
         grouped(plan.ranks_per_node) + " per node; " + plan.distributed_type + ": " + shared_text(plan) + "\n";
}

std::string held_table(const ScalePlan& plan, const std::optional<DryRun>& found) {
  TextTable table({Align::kLeft, Align::kRight, Align::kRight, Align::kRight});
  table.add({"rank " + grouped(plan.options.rank) + " keeps between steps", "", "bytes", found ? "dry run" : ""});
  const auto add = [&](const std::string& name, int64_t HeldBytes::* part) {
    table.add({"  " + name, text_of_bytes(plan.held.*part), grouped(plan.held.*part),
               found ? grouped(found->resources.held.*part) : ""});
  };
  add("parameters", &HeldBytes::parameters);
  add("gradients", &HeldBytes::gradients);
  add("optimizer state", &HeldBytes::optimizer_state);
  if (plan.num_units > 0) {
    table.add({"gathered at one time, at most (" + grouped(plan.num_units) + " units)", "", "", ""});
    table.add({"  parameters", text_of_bytes(plan.gathered_bytes), grouped(plan.gathered_bytes), ""});
    table.add({"  gradients", text_of_bytes(plan.whole_gradients_bytes), grouped(plan.whole_gradients_bytes), ""});
  }
  return table.to_string();
}

void add_lines(TextTable& table, const std::vector<TrafficLine>& lines, int64_t world_size) {
  for (const TrafficLine& line : lines) {
    table.add({"  " + line.purpose, line.operation, grouped(line.calls), grouped(line.bytes),
               text_of_bytes(std::llround(sent_bytes(line, world_size)))});
  }
}

std::string traffic_table(const ScalePlan& plan) {
  TextTable table({Align::kLeft, Align::kLeft, Align::kRight, Align::kRight, Align::kRight});
  table.add({"communication in each step", "by", "calls", "bytes", "sent in a ring"});
  add_lines(table, plan.step, plan.options.world_size);
  if (plan.first_step != plan.step) {
    table.add({"in the first step", "", "", "", ""});
    add_lines(table, plan.first_step, plan.options.world_size);
  }
  table.add({"before the first step", "", "", "", ""});
  add_lines(table, plan.start, plan.options.world_size);
  return table.to_string();
}

/// What was sent in all, beside what was foreseen.
std::string found_table(const ScalePlan& plan, const DryRun& found) {
  const std::vector<TrafficLine> foreseen = traffic_after(plan, found.resources.steps);
  const auto line_of = [](const std::vector<TrafficLine>& lines, const TrafficLine& wanted) {
    const auto it = std::find_if(lines.begin(), lines.end(), [&](const TrafficLine& line) {
      return line.purpose == wanted.purpose && line.operation == wanted.operation;
    });
    return it == lines.end() ? TrafficLine{wanted.purpose, wanted.operation} : *it;
  };
  std::vector<TrafficLine> all = found.resources.traffic;
  for (const TrafficLine& line : foreseen) {
    if (line_of(found.resources.traffic, line).calls == 0) all.push_back(line);
  }
  TextTable table({Align::kLeft, Align::kLeft, Align::kRight, Align::kRight, Align::kRight, Align::kRight});
  table.add({"dry run of " + grouped(found.resources.steps) + " steps", "by", "calls", "bytes", "predicted", "bytes"});
  for (const TrafficLine& line : all) {
    const TrafficLine measured = line_of(found.resources.traffic, line);
    const TrafficLine expected = line_of(foreseen, line);
    table.add({"  " + line.purpose, line.operation, grouped(measured.calls), grouped(measured.bytes),
               grouped(expected.calls), grouped(expected.bytes)});
  }
  std::vector<std::string> numbers;
  for (size_t i = 0; i < std::min(kMostSamples, found.samples.size()); ++i) {
    numbers.push_back(std::to_string(found.samples[i]));
  }
  if (numbers.size() < found.samples.size()) numbers.emplace_back("...");
  return table.to_string() + "  " + grouped(found.num_samples) + " samples seen, the first batch " + join(numbers) +
         "; most resident memory " + text_of_bytes(found.peak_resident_bytes) +
         "\n  no other rank took part: losses and weights of a dry run mean nothing" +
         (plan.num_units > 0 ? " (sharded parameters are\n  this rank's part in every place)" : "") + "\n";
}

std::string samples_text(const ScalePlan& plan) {
  if (!plan.samples) return "their number is known once the data are read";
  const SampleShare& share = *plan.samples;
  std::string text =
      grouped(share.per_epoch) + " for each rank in an epoch, " + grouped(share.steps_per_epoch) + " steps";
  if (share.added > 0) text += "; " + grouped(share.added) + " are repeated, so that all ranks have the same number";
  if (share.left_out > 0) text += "; " + grouped(share.left_out) + " are left out by drop_last";
  return text + "; their order takes " + text_of_bytes(share.order_bytes) + " of memory as an epoch begins";
}

std::string link_text(const Link& link) {
  return decimal(link.bandwidth / kGiga, 1) + " GB/s, " + decimal(link.latency * kMicro, 1) + " us";
}

std::string time_text(const ScalePlan& plan) {
  const StepTime& time = plan.time;
  TextTable facts({Align::kLeft, Align::kLeft});
  facts.add({"samples", samples_text(plan)});
  facts.add({"effective batch", grouped(plan.effective_batch_size) + " = batch_size " + grouped(plan.batch_size) +
                                    " x ranks " + grouped(plan.options.world_size) + " x gradient_accumulation_steps " +
                                    grouped(plan.gradient_accumulation_steps)});
  facts.add(
      {"links", "within a node " + link_text(plan.options.intra) + "; between nodes " + link_text(plan.options.inter)});
  facts.add({"computing",
             short_duration(time.compute) + " per step" +
                 (plan.options.sample_seconds ? ""
                                              : ", from 3 x " + amount_text(plan.flops) + "FLOPs per sample at " +
                                                    amount_text(plan.options.flops_per_second) + "FLOP/s")});
  facts.add({"communication", "gradients " + short_duration(time.gradients) + ", parameters " +
                                  short_duration(time.parameters) + ", of which " + short_duration(time.exposed) +
                                  " not overlapped with computing; others " + short_duration(time.others)});
  const double rate = static_cast<double>(plan.effective_batch_size) / time.step();
  facts.add({"a step", short_duration(time.step()) + ": " + rate_text(rate) + " samples/s, efficiency " +
                           decimal(100 * time.efficiency(), 1) + " % of that many independent ranks (predicted)"});
  for (const std::string& note : plan.notes) facts.add({"note", note});
  return facts.to_string("", kTextWidth);
}

ordered_json json_of(const Link& link) {
  return {{"latency_seconds", link.latency}, {"bytes_per_second", link.bandwidth}};
}

ordered_json json_of(const std::vector<TrafficLine>& lines, int64_t world_size) {
  ordered_json result = to_json(lines);
  for (size_t i = 0; i < lines.size(); ++i) result[i]["sent_bytes"] = sent_bytes(lines[i], world_size);
  return result;
}

ordered_json json_of(const std::optional<SampleShare>& share) {
  if (!share) return {};
  return {{"per_rank_and_epoch", share->per_epoch},
          {"added", share->added},
          {"left_out", share->left_out},
          {"steps_per_epoch", share->steps_per_epoch},
          {"order_bytes", share->order_bytes}};
}

ordered_json json_of(const StepTime& time, int64_t effective_batch_size) {
  return {{"compute", time.compute},
          {"gradients", time.gradients},
          {"parameters", time.parameters},
          {"exposed", time.exposed},
          {"others", time.others},
          {"step", time.step()},
          {"samples_per_second", static_cast<double>(effective_batch_size) / time.step()},
          {"efficiency", time.efficiency()}};
}

ordered_json json_of(const DryRun& found) {
  ordered_json result = to_json(found.resources);
  result["samples_seen"] = found.num_samples;
  result["first_samples"] = found.samples;
  result["peak_resident_bytes"] = found.peak_resident_bytes;
  return result;
}

}  // namespace

std::string to_text(const ScalePlan& plan, const std::optional<DryRun>& found) {
  std::string text = headline(plan) + "\n" + held_table(plan, found) + "\n";
  if (plan.options.world_size > 1) text += traffic_table(plan) + "\n";
  if (found) text += found_table(plan, *found) + "\n";
  return text + time_text(plan);
}

ordered_json to_json(const ScalePlan& plan, const std::optional<DryRun>& found) {
  const int64_t world_size = plan.options.world_size;
  ordered_json result = {{"name", plan.name},
                         {"recipe", plan.path},
                         {"distributed_type", plan.distributed_type},
                         {"zero_stage", plan.stage},
                         {"world_size", world_size},
                         {"ranks_per_node", plan.ranks_per_node},
                         {"rank", plan.options.rank},
                         {"held", to_json(plan.held)},
                         {"units", plan.num_units},
                         {"gathered_bytes", plan.gathered_bytes},
                         {"whole_gradients_bytes", plan.whole_gradients_bytes}};
  result["traffic"] = {{"start", json_of(plan.start, world_size)},
                       {"first_step", json_of(plan.first_step, world_size)},
                       {"step", json_of(plan.step, world_size)}};
  result["samples"] = json_of(plan.samples);
  result["effective_batch_size"] = plan.effective_batch_size;
  result["flops"] = plan.flops;
  result["links"] = {{"intra", json_of(plan.options.intra)}, {"inter", json_of(plan.options.inter)}};
  result["seconds"] = json_of(plan.time, plan.effective_batch_size);
  result["notes"] = plan.notes;
  if (found) {
    result["dry_run"] = json_of(*found);
    result["dry_run"]["foreseen_traffic"] = to_json(traffic_after(plan, found->resources.steps));
  }
  return result;
}

}  // namespace trainrun
