#include "runner/report/page/evaluation_html.h"

#include <ATen/TensorOperators.h>

#include <algorithm>
#include <cmath>

#include "registry/formats/images/encode.h"
#include "registry/language/text_forms.h"
#include "runner/base/secrets.h"
#include "runner/base/text.h"
#include "runner/data/picture.h"
#include "runner/report/data_survey.h"
#include "runner/report/page/html.h"

namespace trainrun {
namespace {

using nlohmann::ordered_json;
using Rows = std::vector<std::vector<std::string>>;
using Points = std::vector<std::pair<double, double>>;

ordered_json points_json(const Points& points) {
  ordered_json list = ordered_json::array();
  for (const auto& [x, y] : points) {
    list.push_back(
        {std::isfinite(x) ? ordered_json(x) : ordered_json(), std::isfinite(y) ? ordered_json(y) : ordered_json()});
  }
  return list;
}

ChartOnPage chart_of(const std::string& title, const std::string& x, const std::string& y) {
  return {title, {{"title", title}, {"x", x}, {"y", y}, {"points", true}, {"series", ordered_json::array()}}};
}

void add_series(ChartOnPage& chart, const std::string& label, const Points& points, const char* style) {
  chart.data["series"].push_back({{"label", label}, {"style", style}, {"points", points_json(points)}});
}

std::string figure_html(double number) { return escaped_html(in_figures(number, 4)); }

std::string classes_html(const ClassReport& report) {
  Rows rows;
  const auto add = [&](const std::string& name, const ClassReport::Row& row) {
    rows.push_back({escaped_html(name), figure_html(row.precision), figure_html(row.recall), figure_html(row.f1),
                    grouped(std::llround(row.samples))});
  };
  for (size_t i = 0; i < report.classes; ++i) add(report.class_text(i), report.row(i));
  if (report.has_labels) {
    for (const auto& [name, row] : report.averages()) add(name, row);
  }
  const std::string caption = report.prefix + ": each " + (report.has_labels ? "label" : "class") + "; " +
                              decimal(100 * report.accuracy(), 2) + " % are right";
  return html_table(caption, {report.has_labels ? "label" : "class", "precision", "recall", "F1", "samples"}, rows);
}

std::string confusion_html(const ClassReport& report) {
  constexpr size_t kMost = 50;
  if (report.has_labels) return "";
  if (report.classes > kMost) {
    return "<p class=\"note\">The confusion matrix of " + std::to_string(report.classes) +
           " classes is too large for the page: <code>trainrun eval RUN --report --json</code> has it.</p>\n";
  }
  std::vector<std::string> heads = {""};
  Rows rows;
  for (size_t i = 0; i < report.classes; ++i) {
    heads.push_back(escaped_html(report.names.size() == report.classes ? report.names[i] : std::to_string(i)));
    const double all = std::max(1.0, report.row(i).samples);
    std::vector<std::string> row = {escaped_html(report.class_text(i))};
    for (size_t k = 0; k < report.classes; ++k) {
      const double count = report.counts[i * report.classes + k];
      const std::string heat = decimal(0.35 * count / all, 3);
      row.push_back("<span style=\"background: rgba(var(--heat), " + heat + ")\">" + grouped(std::llround(count)) +
                    "</span>");
    }
    rows.push_back(std::move(row));
  }
  return html_table(report.prefix + ": rows are the samples' classes, columns the predicted ones", heads, rows,
                    "confusion");
}

std::string curves_html(const SetEvaluation& set, PageCharts& charts) {
  const auto named = [&](const std::string& title, const std::string& x, const std::string& y, const char* figure,
                         const std::vector<SetEvaluation::NamedCurve>& curves, const Points& plain) -> std::string {
    if (curves.empty()) return "";
    ChartOnPage chart = chart_of(set.prefix + ": " + title, x, y);
    std::vector<std::string> words;
    for (const SetEvaluation::NamedCurve& one : curves) {
      words.push_back(one.name + " " + in_figures(one.curve.figure, 4));
      add_series(chart, one.name + " (" + figure + " " + in_figures(one.curve.figure, 4) + ")", one.curve.points,
                 "line");
    }
    if (!plain.empty()) add_series(chart, "by chance", plain, "plain");
    chart.description = title + ", " + figure + " of " + join(words);
    return charts.add(chart);
  };
  std::string html = named("ROC", "false positive rate", "true positive rate", "AUC", set.roc, {{0, 0}, {1, 1}});
  html += named("precision and recall", "recall", "precision", "AP", set.precision_recall, {});
  if (!set.calibration) return html;
  ChartOnPage chart = chart_of(set.prefix + ": calibration", "predicted probability", "share that is right");
  const std::string error = in_figures(set.calibration->figure, 4);
  add_series(chart, "the model (calibration error " + error + ")", set.calibration->points, "line");
  add_series(chart, "as it should be", {{0, 0}, {1, 1}}, "plain");
  chart.description =
      "how often predictions are right over how probable the model says they are; the expected "
      "calibration error is " +
      error;
  return html + charts.add(chart);
}

std::string numbers_html(const SetEvaluation& set) {
  if (set.numbers.empty()) return "";
  Rows rows;
  for (const SetEvaluation::Numbers& numbers : set.numbers) {
    rows.push_back(
        {escaped_html(numbers.name), figure_html(numbers.rmse), figure_html(numbers.mae), figure_html(numbers.r2)});
  }
  return html_table(set.prefix + ": errors, in the data's own units", {"number", "RMSE", "MAE", "R2"}, rows);
}

std::string number_charts_html(const SetEvaluation& set, PageCharts& charts) {
  std::string html;
  for (const SetEvaluation::Numbers& numbers : set.numbers) {
    Points residuals;
    double least = INFINITY, most = -INFINITY;
    for (const auto& [truth, predicted] : numbers.pairs) {
      residuals.emplace_back(predicted, predicted - truth);
      least = std::min(least, truth);
      most = std::max(most, truth);
    }
    ChartOnPage against = chart_of(set.prefix + ": " + numbers.name + ", predicted and true", "true", "predicted");
    add_series(against, numbers.name, numbers.pairs, "points");
    add_series(against, "as it should be", {{least, least}, {most, most}}, "plain");
    against.description = "predicted over true " + numbers.name + "; R2 is " + in_figures(numbers.r2, 4);
    ChartOnPage left = chart_of(set.prefix + ": " + numbers.name + ", residuals", "predicted", "predicted - true");
    add_series(left, numbers.name, residuals, "points");
    left.description = "what predictions of " + numbers.name + " are wrong by, over the predictions; RMSE is " +
                       in_figures(numbers.rmse, 4);
    html += charts.add(against) + charts.add(left);
  }
  for (const SetEvaluation::Forecast& forecast : set.forecasts) {
    ChartOnPage chart = chart_of(set.prefix + ": forecast for " + forecast.place, "step ahead",
                                 set.numbers.empty() ? "" : set.numbers[0].name);
    Points truth, predicted;
    for (size_t i = 0; i < forecast.truth.size(); ++i) {
      truth.emplace_back(static_cast<double>(i + 1), forecast.truth[i]);
      predicted.emplace_back(static_cast<double>(i + 1), forecast.predicted[i]);
    }
    add_series(chart, "predicted", predicted, "line");
    add_series(chart, "true", truth, "plain");
    chart.description = "what was forecast, and what came, step by step";
    html += charts.add(chart);
  }
  return html;
}

/// The sample itself: its picture, its text, or its numbers.
std::string sample_html(const SetEvaluation::Mistake& mistake) {
  constexpr int64_t kMostNumbers = 32;
  constexpr size_t kMostText = 2000;
  std::string html;
  for (const SurveyedSet::TokenRow& row : mistake.rows) {
    std::vector<std::string> tokens;
    for (const SurveyedSet::TokenRow::Token& token : row.tokens) {
      if (!token.padding) tokens.push_back(token.text);
    }
    const std::string text = row.decoded.empty() ? join(tokens, " ") : row.decoded;
    html += "<div class=\"tokens\" tabindex=\"0\">" + escaped_lines(shortened(text, kMostText)) + "</div>";
  }
  if (!mistake.input.defined()) return html;
  const at::Tensor picture = picture_of(mistake.input);
  if (picture.defined()) {
    return "<img alt=\"" + escaped_html(mistake.place) + "\" src=\"data:image/png;base64," +
           base64(encode_png(picture)) + "\">";
  }
  const at::Tensor numbers = mistake.input.to(at::kDouble).reshape({-1});
  std::string words;
  for (int64_t i = 0; i < std::min(numbers.numel(), kMostNumbers); ++i) {
    const bool has_name = static_cast<size_t>(numbers.numel()) == mistake.columns.size();
    words += (i > 0 ? ", " : "") + (has_name ? mistake.columns[static_cast<size_t>(i)] + " " : "") +
             in_figures(numbers[i].item<double>(), 4);
  }
  if (numbers.numel() > kMostNumbers) words += ", … (" + std::to_string(numbers.numel()) + " numbers)";
  return "<div class=\"tokens\" tabindex=\"0\">" + escaped_html(words) + "</div>";
}

std::string mistakes_html(const SetEvaluation& set) {
  if (set.mistakes.empty())
    return set.classes ? "<p>No sample of " + escaped_html(set.prefix) + " is taken for another class.</p>\n" : "";
  const bool are_pictures = set.mistakes[0].rows.empty() && picture_of(set.mistakes[0].input).defined();
  const std::string measure = set.classes ? "loss" : "error";
  std::string html = "<h3>" + escaped_html(set.prefix) + ": the worst mistakes</h3>\n<div class=\"mistakes" +
                     std::string(are_pictures ? "" : " wide") + "\">\n";
  for (const SetEvaluation::Mistake& mistake : set.mistakes) {
    html += "<figure>" + sample_html(mistake) + "<figcaption><b>" + escaped_html(mistake.said) + "</b>, it is <b>" +
            escaped_html(mistake.expected) + "</b><br>" + measure + " " + figure_html(mistake.badness) + "<br>" +
            escaped_html(mistake.place) + "</figcaption></figure>\n";
  }
  return html + "</div>\n";
}

}  // namespace

std::string PageCharts::add(const ChartOnPage& chart) {
  const std::string number = std::to_string(charts_.size());
  constexpr size_t kMany = 4;  // lines in the legend's way
  const bool is_tall = !chart.data.contains("figures") && chart.data["series"].size() > kMany;
  charts_.push_back(chart.data);
  return "<section class=\"chart\" id=\"chart-" + number + "\" aria-labelledby=\"title-" + number +
         "\"><h3 id=\"title-" + number + "\">" + escaped_html(chart.title) + "</h3>\n<div class=\"area" +
         (is_tall ? " tall" : "") + "\"><canvas role=\"img\" aria-label=\"" +
         escaped_html(chart.title + ": " + chart.description) +
         "\"></canvas></div>\n<details class=\"numbers\"><summary>numbers of " + escaped_html(chart.title) +
         "</summary><div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"numbers of " +
         escaped_html(chart.title) + "\"></div></details></section>\n";
}

std::string evaluation_html(const std::string& run, const RunEvaluation& evaluation, PageCharts& charts) {
  std::string html = "<h2>" + escaped_html(run) + ": evaluation, sample by sample</h2>\n<p class=\"note\">" +
                     escaped_html(evaluation.checkpoint) + "</p>\n";
  for (const std::string& note : evaluation.notes)
    html += "<p class=\"note\">" + escaped_html(without_secrets(note)) + "</p>\n";
  for (const SetEvaluation& set : evaluation.sets) {
    if (set.classes) html += classes_html(*set.classes) + confusion_html(*set.classes);
    html += numbers_html(set);
    if (set.drawn > 0 && set.drawn < set.samples) {
      html += "<p class=\"note\">Of " + grouped(set.samples) + " samples, " + grouped(set.drawn) + " are drawn.</p>\n";
    }
    html += "<div class=\"charts\">\n" + curves_html(set, charts) + number_charts_html(set, charts) + "</div>\n" +
            mistakes_html(set);
  }
  return html;
}

}  // namespace trainrun
