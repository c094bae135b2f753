#include <algorithm>
#include <cmath>
#include <map>

#include "registry/language/text_forms.h"
#include "runner/base/text.h"
#include "runner/replay/replay.h"

namespace trainrun {
namespace {

using Kind = RecordedItem::Kind;
using nlohmann::ordered_json;

std::string number(double value) { return std::isnan(value) ? "nan" : in_figures(value, 4); }

ordered_json json_number(double value) { return std::isfinite(value) ? ordered_json(value) : ordered_json(); }

/// What all of a step's batches gave in one place: figures as of one tensor.
TensorFigures joined(const TensorFigures& a, const TensorFigures& b) {
  if (a.elements == 0) return b;
  TensorFigures both = a;
  both.elements += b.elements;
  both.not_finite += b.not_finite;
  both.norm = std::sqrt(a.norm * a.norm + b.norm * b.norm);
  const auto of_a = static_cast<double>(a.elements - a.not_finite);
  const auto of_b = static_cast<double>(b.elements - b.not_finite);
  both.mean = of_a + of_b > 0 ? (a.mean * of_a + b.mean * of_b) / (of_a + of_b) : 0;
  both.least = of_a == 0 ? b.least : of_b == 0 ? a.least : std::min(a.least, b.least);
  both.greatest = of_a == 0 ? b.greatest : of_b == 0 ? a.greatest : std::max(a.greatest, b.greatest);
  return both;
}

struct LayerRow {
  std::string name, type;
  TensorFigures output, gradient;
};

/// In the order of the forward pass; the outputs of a layer that has several count as one.
std::vector<LayerRow> layers_of(const RecordedStep& step) {
  std::vector<LayerRow> rows;
  for (const RecordedItem& item : step.items) {
    const bool is_output = item.kind == Kind::kOutput;
    if (!is_output && item.kind != Kind::kOutputGradient) continue;
    auto row =
        std::ranges::find_if(rows, [&](const LayerRow& one) { return one.name == item.name && one.type == item.type; });
    if (row == rows.end()) row = rows.insert(rows.end(), {item.name, item.type, {}, {}});
    TensorFigures& figures = is_output ? row->output : row->gradient;
    figures = joined(figures, item.figures);
  }
  return rows;
}

struct ParameterRow {
  std::string name;
  TensorFigures before;
  const RecordedItem* gradient = nullptr;  // null: it has none
  std::optional<double> update;            // the norm of its change
};

std::vector<ParameterRow> parameters_of(const RecordedStep& step) {
  std::vector<ParameterRow> rows;
  for (const RecordedItem& item : step.items) {
    if (item.kind != Kind::kParameter) continue;
    ParameterRow row{item.name, item.figures, step.find(Kind::kGradient, item.name), std::nullopt};
    const RecordedItem* after = step.find(Kind::kNewParameter, item.name);
    if (after) {
      const TensorFigures change = figures_of(after->value.to(at::kDouble) - item.value.to(at::kDouble));
      row.update = change.not_finite > 0 ? NAN : change.norm;
    }
    rows.push_back(std::move(row));
  }
  return rows;
}

std::string layers_text(const RecordedStep& step) {
  using Align = TextTable::Align;
  std::vector<Align> columns(9, Align::kRight);
  columns[0] = columns[1] = Align::kLeft;
  TextTable table(columns);
  table.add(
      {"layer", "type", "output: norm", "mean", "abs max", "not finite", "gradient: norm", "abs max", "not finite"});
  for (const LayerRow& row : layers_of(step)) {
    const bool has_gradient = row.gradient.elements > 0;
    table.add({row.name.empty() ? "-" : row.name, row.type, number(row.output.norm), number(row.output.mean),
               number(row.output.abs_max()), std::to_string(row.output.not_finite),
               has_gradient ? number(row.gradient.norm) : "-", has_gradient ? number(row.gradient.abs_max()) : "-",
               has_gradient ? std::to_string(row.gradient.not_finite) : "-"});
  }
  return table.to_string();
}

std::string parameters_text(const RecordedStep& step) {
  using Align = TextTable::Align;
  std::vector<Align> columns(6, Align::kRight);
  columns[0] = Align::kLeft;
  TextTable table(columns);
  table.add({"parameter", "norm", "gradient: norm", "abs max", "update: norm", "update / norm"});
  for (const ParameterRow& row : parameters_of(step)) {
    table.add({row.name, number(row.before.norm), row.gradient ? number(row.gradient->figures.norm) : "-",
               row.gradient ? number(row.gradient->figures.abs_max()) : "-", row.update ? number(*row.update) : "-",
               row.update && row.before.norm > 0 ? number(*row.update / row.before.norm) : "-"});
  }
  return table.to_string();
}

double gradient_norm_of(const RecordedStep& step) {
  double sum = 0;
  bool is_finite = true;
  for (const RecordedItem& item : step.items) {
    if (item.kind != Kind::kGradient) continue;
    sum += item.figures.norm * item.figures.norm;
    is_finite = is_finite && item.figures.not_finite == 0;
  }
  return is_finite ? std::sqrt(sum) : NAN;
}

std::string start_text(const StepReplay& replay) {
  const int64_t steps = replay.step.step - replay.from.step;
  const std::string from = replay.from.path.empty() ? "the beginning" : replay.from.path;
  return "made again from " + from + ", " + counted(steps, "step", "steps");
}

std::string logged_text(const StepReplay& replay) {
  if (!replay.logged) return "  (not logged)";
  return *replay.is_as_logged() ? "  as logged" : "  but " + number(*replay.logged) + " was logged";
}

std::string samples_text(const StepReplay& replay) {
  constexpr size_t kShown = 8;
  std::vector<std::string> words;
  for (const StepReplay::Sample& sample : replay.samples) {
    words.push_back(std::to_string(sample.number) + (sample.place.empty() ? "" : " (" + sample.place + ")"));
  }
  std::string text =
      counted(static_cast<int64_t>(words.size()), "sample", "samples") + ": " + join_first(words, kShown);
  return text + (words.size() > kShown ? "; --json lists all" : "");
}

ordered_json figures_json(const TensorFigures& figures) {
  return {{"norm", json_number(figures.norm)},
          {"mean", json_number(figures.mean)},
          {"abs_max", json_number(figures.abs_max())},
          {"least", json_number(figures.least)},
          {"greatest", json_number(figures.greatest)},
          {"not_finite", figures.not_finite},
          {"elements", figures.elements}};
}

}  // namespace

std::string to_text(const StepReplay& replay) {
  const RecordedStep& step = replay.step;
  std::string text = replay.run + ", step " + std::to_string(step.step) + " (epoch " + std::to_string(step.epoch) +
                     ", batch " + std::to_string(step.first_batch) + "), " + start_text(replay) + "\n\n";
  text += "loss           " + number(step.loss) + logged_text(replay) + "\n";
  text += "gradient norm  " + number(step.grad_norm.value_or(gradient_norm_of(step))) +
          (step.grad_norm ? "  before clipping" : "") + "\n";
  std::vector<std::string> rates;
  for (const double rate : step.rates) rates.push_back(number(rate));
  text += "learning rate  " + join_first(rates, rates.size()) + "\n" + samples_text(replay) + "\n\n";
  text += layers_text(step) + "\n" + parameters_text(step);
  if (first_not_finite(step)) text += "\n" + not_finite_text(step) + "\n";
  if (replay.is_as_logged() == false) {
    text +=
        "\nnote: the loss is not the one that was logged: the run was changed from outside, or made by another "
        "machine, another number of threads, or a GPU without deterministic: true\n";
  }
  for (const std::string& note : replay.notes) text += "\nnote: " + note + "\n";
  return text;
}

ordered_json to_json(const StepReplay& replay) {
  const RecordedStep& step = replay.step;
  ordered_json json = {{"run", replay.run},
                       {"step", step.step},
                       {"epoch", step.epoch},
                       {"batch", step.first_batch},
                       {"from", {{"checkpoint", replay.from.path}, {"step", replay.from.step}}},
                       {"loss", json_number(step.loss)},
                       {"logged_loss", replay.logged ? json_number(*replay.logged) : ordered_json()},
                       {"as_logged", replay.is_as_logged() ? ordered_json(*replay.is_as_logged()) : ordered_json()},
                       {"grad_norm", json_number(step.grad_norm.value_or(gradient_norm_of(step)))},
                       {"lr", step.rates}};
  json["samples"] = ordered_json::array();
  for (const StepReplay::Sample& sample : replay.samples) {
    ordered_json one = {{"number", sample.number}};
    if (!sample.place.empty()) one["place"] = sample.place;
    json["samples"].push_back(std::move(one));
  }
  json["layers"] = ordered_json::array();
  for (const LayerRow& row : layers_of(step)) {
    ordered_json one = {{"name", row.name}, {"type", row.type}, {"output", figures_json(row.output)}};
    if (row.gradient.elements > 0) one["gradient"] = figures_json(row.gradient);
    json["layers"].push_back(std::move(one));
  }
  json["parameters"] = ordered_json::array();
  for (const ParameterRow& row : parameters_of(step)) {
    ordered_json one = {{"name", row.name}, {"weight", figures_json(row.before)}};
    if (row.gradient) one["gradient"] = figures_json(row.gradient->figures);
    if (row.update) one["update"] = json_number(*row.update);
    json["parameters"].push_back(std::move(one));
  }
  if (first_not_finite(step)) json["not_finite"] = not_finite_text(step);
  json["notes"] = replay.notes;
  return json;
}

}  // namespace trainrun
