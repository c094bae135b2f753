#include <algorithm>
#include <array>

#include "runner/base/text.h"
#include "runner/foresight/explain.h"

namespace trainrun {
namespace {

using nlohmann::ordered_json;

constexpr size_t kWidth = 100;
using Align = TextTable::Align;

std::string or_blank(int64_t number, const std::string& text) { return number == 0 ? "" : text; }

/// "after 2 epochs": when parameters that are frozen at first begin to learn.
std::string unfreezing_text(const Explanation& e) {
  const int64_t epochs = e.unfreeze_at_epoch.value_or(0);
  return "after " + grouped(epochs) + (epochs == 1 ? " epoch" : " epochs");
}

/// How much of a layer learns; "" where it has no parameters.
std::string trained_text(const Explanation& e, const LayerSummary& layer) {
  if (layer.parameters == 0) return "";
  if (layer.trainable_parameters == 0) return "frozen";
  if (layer.late_parameters == 0) return grouped(layer.trainable_parameters);
  if (layer.late_parameters == layer.parameters) return unfreezing_text(e);
  const std::string late = grouped(layer.late_parameters) + " " + unfreezing_text(e);
  const int64_t at_once = layer.trainable_parameters - layer.late_parameters;
  return at_once == 0 ? late : grouped(at_once) + " + " + late;
}

std::string layer_table(const Explanation& e) {
  const bool shows_trained = e.trainable_parameters < e.parameters || e.late_parameters > 0;
  std::vector<Align> columns = {Align::kLeft, Align::kLeft, Align::kLeft, Align::kRight, Align::kRight, Align::kRight};
  if (shows_trained) columns.push_back(Align::kRight);
  TextTable table(columns);
  const auto add = [&](std::vector<std::string> row, const std::string& trained) {
    if (shows_trained) row.insert(row.begin() + 4, trained);
    table.add(row);
  };
  add({"layer", "type", "output", "parameters", "FLOPs", "activations"}, "trained");
  table.add_rule();
  int64_t activations = 0;
  for (const LayerSummary& layer : e.layers) {
    activations += layer.activation_bytes;
    add({std::string(static_cast<size_t>(layer.depth), ' ') + layer.name, layer.type, join(layer.output_shapes, " "),
         or_blank(layer.parameters, grouped(layer.parameters)),
         or_blank(layer.flops, amount_text(static_cast<double>(layer.flops))),
         or_blank(layer.activation_bytes, bytes_text(static_cast<double>(layer.activation_bytes)))},
        trained_text(e, layer));
  }
  table.add_rule();
  add({"one sample, forward", "", "", grouped(e.parameters), amount_text(static_cast<double>(e.flops)),
       bytes_text(static_cast<double>(activations))},
      grouped(e.trainable_parameters));
  return table.to_string();
}

std::string parameters_text(const Explanation& e) {
  const int64_t frozen = e.parameters - e.trainable_parameters;
  const std::string late =
      e.late_parameters == 0 ? "" : ", " + grouped(e.late_parameters) + " of them only " + unfreezing_text(e);
  if (frozen == 0) return grouped(e.parameters) + ", all trainable" + late;
  return grouped(e.parameters) + ": " + grouped(e.trainable_parameters) + " trainable" + late + ", " + grouped(frozen) +
         " frozen";
}

std::string memory_parts(const MemorySummary& m) {
  const auto part = [](const char* name, int64_t bytes) {
    return std::string(name) + " " + bytes_text(static_cast<double>(bytes));
  };
  return join({part("weights", m.weights), part("gradients", m.gradients), part("optimizer", m.optimizer_state),
               part("activations", m.activations), part("batch", m.batch)});
}

bool is_one_layer(const FusedSummary& fused) { return fused.types.find(" + ") == std::string::npos; }

/// "1 + 2 (ReLU + MaxPool2d)"; "" if no layers are fused.
std::string fused_text(const Explanation& e) {
  std::vector<std::string> texts;
  for (const FusedSummary& fused : e.fused) {
    if (!is_one_layer(fused)) texts.push_back(fused.layers + " (" + fused.types + ")");
  }
  return join(texts);
}

/// "WinogradConv2d: layer1.0.conv1, layer1.0.conv2": single layers that something else computes, by what it is called.
std::vector<std::string> replaced_texts(const Explanation& e) {
  std::map<std::string, std::vector<std::string>> layers;
  for (const FusedSummary& fused : e.fused) {
    if (is_one_layer(fused)) layers[fused.fusion].push_back(fused.layers);
  }
  std::vector<std::string> texts;
  for (const auto& [fusion, names] : layers) texts.push_back(fusion + ": " + join(names));
  return texts;
}

/// "layer1 (12 KB of a sample), layer2"
std::string recomputed_text(const Explanation& e) {
  std::vector<std::string> texts;
  for (const RecomputedSummary& layer : e.recomputed) {
    const std::string bytes = bytes_text(static_cast<double>(layer.activation_bytes)) + " of a sample";
    texts.push_back(layer.layer + (layer.activation_bytes > 0 ? " (" + bytes + ")" : ""));
  }
  return join(texts);
}

/// "without padding in 47 layers, the first in 6 layers"; "" where every layer computes all.
std::string positions_text(const Explanation& e) {
  std::vector<std::string> texts;
  for (const auto& [positions, layers] : e.positions) {
    texts.push_back(positions + " in " + std::to_string(layers) + (layers == 1 ? " layer" : " layers"));
  }
  return join(texts);
}

std::string known(const std::optional<int64_t>& number) { return number ? grouped(*number) : "?"; }

std::string samples_text(const LengthSummary& length) {
  std::string unknown = "number known once the data is read";
  if (!length.train_samples && !length.eval_samples) return unknown;
  const auto split = [&](const std::optional<int64_t>& samples) { return samples ? grouped(*samples) : unknown; };
  return "training " + split(length.train_samples) + ", evaluation " + split(length.eval_samples);
}

std::string steps_text(const LengthSummary& length) {
  std::string text = "total " + known(length.total_steps);
  if (length.num_epochs)
    text += " in " + grouped(*length.num_epochs) + (*length.num_epochs == 1 ? " epoch" : " epochs");
  if (!length.steps_per_epoch) return text;
  return text + "; an epoch is " + grouped(*length.batches_per_epoch) +
         (length.pieces == 1 ? " batches = " : " pieces of batches = ") + grouped(*length.steps_per_epoch) +
         " optimizer steps";
}

std::string effective_batch_text(const LengthSummary& length) {
  const std::string batch = length.pieces == 1 ? "batch_size " + grouped(length.batch_size)
                                               : "micro_batch_size " + grouped(length.batch_size) + " x " +
                                                     grouped(length.pieces) + " pieces of a batch";
  return grouped(length.effective_batch_size()) + " = " + batch + " x num_processes " + grouped(length.num_processes) +
         " x gradient_accumulation_steps " + grouped(length.gradient_accumulation_steps / length.pieces);
}

std::string group_table(const Explanation& e) {
  TextTable table({Align::kLeft, Align::kRight, Align::kRight, Align::kRight, Align::kLeft});
  table.add({"match", "tensors", "parameters", "lr", "overrides"});
  for (const GroupSummary& group : e.groups) {
    table.add({group.match.empty() ? "(the rest)" : "'" + group.match + "'", grouped(group.tensors),
               grouped(group.parameters), scientific(group.lr), group.overrides});
  }
  return table.to_string("  ");
}

/// The first group's rates as bars of eight heights.
std::string sparkline(const std::vector<RatePoint>& points) {
  static constexpr std::array<const char*, 9> kBars = {" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
  double highest = 0;
  for (const RatePoint& point : points) highest = std::max(highest, point.rates[0].lr);
  std::string text;
  for (const RatePoint& point : points) {
    const double height = highest > 0 ? point.rates[0].lr / highest * 8 : 0;
    text += kBars[static_cast<size_t>(std::clamp(height + 0.5, 1.0, 8.0))];
  }
  return text;
}

/// "9.3e-4": no zero in the exponent, so that eleven of them fit a line.
std::string short_scientific(double number) {
  std::string text = scientific(number);
  const size_t zero = text.size() - 2;
  if (text[zero] == '0') text.erase(zero, 1);
  return text;
}

/// Whether the rates end before the job does.
bool is_cut(const Explanation& e) { return e.length.total_steps && e.rates.back().step + 1 < *e.length.total_steps; }

std::string rate_table(const Explanation& e) {
  std::vector<Align> columns(12, Align::kRight);
  columns[0] = Align::kLeft;
  TextTable table(columns);
  std::vector<RatePoint> tenths;
  for (size_t i = 0; i <= 10; ++i) tenths.push_back(e.rates[i * (e.rates.size() - 1) / 10]);
  std::vector<std::string> header = {"after"};
  std::vector<std::string> steps = {"step"};
  for (size_t i = 0; i < tenths.size(); ++i) {
    header.push_back(std::to_string(10 * i) + " %");
    steps.push_back(std::to_string(tenths[i].step));
  }
  if (!is_cut(e)) table.add(header);
  table.add(steps);
  std::vector<std::vector<std::string>> rows;
  for (size_t group = 0; group < e.groups.size(); ++group) {
    std::vector<std::string> row = {"lr " + std::to_string(group + 1)};
    for (const RatePoint& point : tenths) row.push_back(short_scientific(point.rates[group].lr));
    rows.push_back(row);
  }
  const bool same = std::all_of(rows.begin(), rows.end(), [&](const auto& row) {
    return std::equal(row.begin() + 1, row.end(), rows[0].begin() + 1);
  });
  if (same) rows.resize(1), rows[0][0] = "lr";
  for (const auto& row : rows) table.add(row);
  return table.to_string("  ");
}

std::string rates_text(const Explanation& e) {
  if (e.scheduler.empty()) return "learning rate: constant " + scientific(e.groups[0].lr) + "\n";
  if (e.rates.empty()) return "learning rate: " + e.scheduler + ", over a length that is known once the data is read\n";
  std::string text = "learning rate: " + e.scheduler;
  if (!e.monitor.empty()) text += ", falls where " + e.monitor + " stops getting better (not shown)";
  if (is_cut(e)) text += ", the first " + std::to_string(e.rates.back().step + 1) + " steps";
  return text + "\n  " + sparkline(e.rates) + "\n" + rate_table(e);
}

ordered_json json_of(const LayerSummary& layer) {
  return {{"name", layer.name},
          {"type", layer.type},
          {"depth", layer.depth},
          {"container", layer.is_container},
          {"output_shapes", layer.output_shapes},
          {"parameters", layer.parameters},
          {"trainable_parameters", layer.trainable_parameters},
          {"late_parameters", layer.late_parameters},
          {"flops", layer.flops},
          {"activation_bytes", layer.activation_bytes}};
}

ordered_json json_of(const std::optional<int64_t>& number) { return number ? ordered_json(*number) : ordered_json(); }

ordered_json json_of(const LengthSummary& length) {
  return {{"train_samples", json_of(length.train_samples)},
          {"eval_samples", json_of(length.eval_samples)},
          {"batches_per_epoch", json_of(length.batches_per_epoch)},
          {"steps_per_epoch", json_of(length.steps_per_epoch)},
          {"total_steps", json_of(length.total_steps)},
          {"num_epochs", json_of(length.num_epochs)},
          {"batch_size", length.batch_size * length.pieces},
          {"micro_batch_size", length.batch_size},
          {"num_processes", length.num_processes},
          {"gradient_accumulation_steps", length.gradient_accumulation_steps / length.pieces},
          {"group_by_length", length.group_by_length},
          {"effective_batch_size", length.effective_batch_size()}};
}

ordered_json json_of(const MemorySummary& memory) {
  return {{"weights", memory.weights},
          {"gradients", memory.gradients},
          {"optimizer_state", memory.optimizer_state},
          {"activations", memory.activations},
          {"batch", memory.batch},
          {"total", memory.total()},
          {"checkpoint_copy", memory.checkpoint_copy}};
}

/// What `columns: auto` came out as, and as a recipe may say it.
std::string inferred_table(const nlohmann::json& inferred) {
  if (inferred.is_null()) return "";
  TextTable table({Align::kLeft, Align::kLeft, Align::kRight, Align::kRight});
  table.add({"column", "type", "missing", "different"});
  std::string line;
  for (const auto& column : inferred.at("columns")) {
    const std::string name = column.at("name");
    const std::string type = column.at("type");
    table.add({name, type + (column.value("one_hot", false) ? ", one-hot" : ""),
               grouped(column.at("missing_values").get<int64_t>()),
               grouped(column.at("distinct_values").get<int64_t>())});
    const bool is_label = &column == &inferred.at("columns").back();
    if (is_label && (type == "integer" || type == "number")) continue;  // which the task says
    line += (line.empty() ? "" : ", ") + column.at("key").get<std::string>() + ": " +
            column.at("recipe").get<std::string>();
  }
  return "\ncolumns of " + inferred.at("path").get<std::string>() + ", inferred from its " +
         grouped(inferred.at("rows").get<int64_t>()) + " rows; the label last\n" + table.to_string("  ") +
         "  to fix them, write\n  columns: {" + line + "}\n";
}

}  // namespace

std::string to_text(const Explanation& e) {
  std::string text = e.name + " (" + e.path + ")\n\n" + layer_table(e) + "\n";
  TextTable facts({Align::kLeft, Align::kLeft});
  facts.add({"parameters", parameters_text(e)});
  facts.add({"FLOPs",
             amount_text(static_cast<double>(e.flops)) + " of one sample, forward (matrix products and convolutions)"});
  facts.add({"memory", "about " + bytes_text(static_cast<double>(e.memory.total())) + " at batch size " +
                           grouped(e.length.batch_size) + ", estimated: every layer's output, no work space"});
  facts.add({"", memory_parts(e.memory)});
  if (e.memory.checkpoint_copy > 0) {
    facts.add({"", bytes_text(static_cast<double>(e.memory.checkpoint_copy)) +
                       " more while a checkpoint is written, unless checkpoint.background is false"});
  }
  if (const std::string fused = fused_text(e); !fused.empty()) facts.add({"fused", fused});
  for (const std::string& text : replaced_texts(e)) facts.add({"computed by", text});
  if (const std::string text = positions_text(e); !text.empty()) facts.add({"positions", text});
  if (!e.recomputed.empty()) facts.add({"computed again", recomputed_text(e)});
  for (size_t i = 0; i < e.contract.size(); ++i) facts.add({i == 0 ? "data" : "", e.contract[i]});
  facts.add({"loss", e.loss + (e.metrics.empty() ? "" : ", metrics " + join(e.metrics))});
  facts.add({"samples", samples_text(e.length)});
  facts.add({"steps", steps_text(e.length)});
  facts.add({"effective batch", effective_batch_text(e.length)});
  if (e.length.group_by_length) {
    facts.add({"group_by_length", "texts of similar length together; `trainrun data` shows how much padding it saves"});
  }
  text += facts.to_string("", kWidth) + inferred_table(e.inferred) + "\noptimizer: " + e.optimizer + "\n" +
          group_table(e) + "\n" + rates_text(e);
  return text;
}

ordered_json to_json(const Explanation& e) {
  ordered_json layers = ordered_json::array();
  for (const LayerSummary& layer : e.layers) layers.push_back(json_of(layer));
  ordered_json fused = ordered_json::array();
  for (const FusedSummary& one : e.fused) {
    fused.push_back({{"layers", one.layers}, {"types", one.types}, {"fusion", one.fusion}});
  }
  ordered_json recomputed = ordered_json::array();
  for (const RecomputedSummary& layer : e.recomputed) {
    recomputed.push_back({{"layer", layer.layer}, {"activation_bytes", layer.activation_bytes}});
  }
  ordered_json groups = ordered_json::array();
  for (const GroupSummary& group : e.groups) {
    groups.push_back({{"match", group.match.empty() ? ordered_json() : ordered_json(group.match)},
                      {"overrides", group.overrides},
                      {"tensors", group.tensors},
                      {"parameters", group.parameters},
                      {"lr", group.lr}});
  }
  ordered_json rates = ordered_json::array();
  for (const RatePoint& point : e.rates) {
    ordered_json lr = ordered_json::array();
    for (const GroupRates& group : point.rates) lr.push_back(group.lr);
    rates.push_back({{"step", point.step}, {"lr", lr}});
  }
  ordered_json all = {{"name", e.name},
                      {"recipe", e.path},
                      {"layers", layers},
                      {"fused", fused},
                      {"positions", e.positions},
                      {"parameters", e.parameters},
                      {"trainable_parameters", e.trainable_parameters},
                      {"late_parameters", e.late_parameters},
                      {"flops", e.flops},
                      {"loss", e.loss},
                      {"data", e.contract},
                      {"inferred", e.inferred},
                      {"metrics", e.metrics},
                      {"length", json_of(e.length)},
                      {"memory_bytes", json_of(e.memory)},
                      {"optimizer", e.optimizer},
                      {"param_groups", groups},
                      {"scheduler", e.scheduler.empty() ? ordered_json() : ordered_json(e.scheduler)},
                      {"learning_rate", rates}};
  if (!e.recomputed.empty()) all["recomputed"] = recomputed;
  return all;
}

}  // namespace trainrun
