#include "runner/sweep/sweep_page.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <functional>
#include <map>

#include "registry/language/text_forms.h"
#include "runner/base/secrets.h"
#include "runner/base/text.h"
#include "runner/report/page/html.h"
#include "runner/report/page/page_assets.h"
#include "runner/sweep/search_space.h"

namespace trainrun {
namespace {

constexpr double kDrawnWidth = 1000, kDrawnHeight = 380, kTop = 34, kBottom = 40, kSide = 70;  // of the drawing
constexpr int kPageFigures = 5;
constexpr const char* kLineStyle = R"(
.lines { width: 100%; height: auto; min-width: 34em; } .lines text { font-size: 13px; fill: var(--ink); } .lines .scale { fill: var(--soft); font-size: 12px; }
.lines .axis { stroke: var(--line); stroke-width: 1.5; } .lines path { fill: none; stroke: var(--soft); stroke-width: 1.3; opacity: .45; }
.lines path.good { stroke: var(--mark); stroke-width: 1.8; opacity: .9; } .lines path.best { stroke: var(--mark); stroke-width: 4; opacity: 1; }
.lines path:hover { stroke: var(--ink); stroke-width: 4; opacity: 1; }
.share { display: inline-block; height: .8em; background: var(--mark); border-radius: 3px; vertical-align: baseline; }
)";

std::string coordinate(double number) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f", number);
  return text;
}

/// One of the vertical lines: where each value lies on it, 0 at the bottom and 1 at the top.
class PageAxis {
 public:
  PageAxis(std::string title, std::vector<std::string> values, bool is_logarithmic)
      : title_(std::move(title)), values_(std::move(values)) {
    std::vector<double> numbers;
    for (const std::string& value : values_) {
      const auto number = parse_number(value);
      if (number) numbers.push_back(*number);
    }
    is_numeric_ = numbers.size() == values_.size() && !numbers.empty();
    if (!is_numeric_) {
      name_places();
      return;
    }
    const auto [low, high] = std::ranges::minmax(numbers);
    is_logarithmic_ = is_logarithmic && low > 0;
    low_ = scaled(low);
    high_ = scaled(high);
    marks_ = {{0, in_figures(low, kPageFigures)}};
    if (high > low) marks_[1] = in_figures(high, kPageFigures);
    if (low == high) marks_ = {{0.5, in_figures(low, kPageFigures)}};
  }

  const std::string& title() const { return title_; }
  bool is_logarithmic() const { return is_logarithmic_; }
  const std::map<double, std::string>& marks() const { return marks_; }
  double place(size_t trial) const {
    if (!is_numeric_) return names_.at(values_[trial]);
    return high_ > low_ ? (scaled(*parse_number(values_[trial])) - low_) / (high_ - low_) : 0.5;
  }

 private:
  double scaled(double number) const { return is_logarithmic_ ? std::log(number) : number; }

  void name_places() {
    for (const std::string& value : values_) names_[value] = 0;
    const double last = std::max<double>(1, static_cast<double>(names_.size()) - 1);
    double next = 0;
    for (auto& [name, place] : names_) {
      place = names_.size() == 1 ? 0.5 : next++ / last;
      marks_[place] = name;
    }
  }

  std::string title_;
  std::vector<std::string> values_;  // of each trial
  bool is_numeric_ = false, is_logarithmic_ = false;
  double low_ = 0, high_ = 0;
  std::map<std::string, double> names_;
  std::map<double, std::string> marks_;
};

using DrawnRows = std::vector<const SweepTable::Row*>;

/// Those with a figure that can be drawn, the worst first, so that the best are drawn over the others.
DrawnRows drawn_rows(const SweepTable& table) {
  DrawnRows rows;
  for (const SweepTable::Row& row : table.rows) {
    const auto figure = row.trial.newest_figure();
    if (figure && std::isfinite(*figure) && row.trial.state != SweepTrial::State::kFailed) rows.push_back(&row);
  }
  std::ranges::stable_sort(rows, std::greater<>(), [&](const SweepTable::Row* row) {
    return table.facts.loss_of(*row->trial.newest_figure());
  });
  return rows;
}

std::vector<PageAxis> axes_of(const SweepTable& table, const DrawnRows& rows) {
  std::map<std::string, bool> is_logarithmic;
  for (const Dimension& dimension : parse_search_space(table.facts.arguments).dimensions) {
    is_logarithmic[dimension.key] = dimension.is_logarithmic();
  }
  std::vector<PageAxis> axes;
  for (size_t key = 0; key < table.facts.keys.size(); ++key) {
    std::vector<std::string> values;
    for (const SweepTable::Row* row : rows) values.push_back(without_secrets(row->trial.values.at(key).second));
    axes.emplace_back(table.facts.keys[key], values, is_logarithmic[table.facts.keys[key]]);
  }
  std::vector<std::string> figures;
  for (const SweepTable::Row* row : rows) figures.push_back(in_figures(*row->trial.newest_figure(), 12));
  axes.emplace_back(table.facts.metric, figures, false);
  return axes;
}

std::string axis_svg(const PageAxis& axis, double x, double height) {
  std::string svg = "<line class=\"axis\" x1=\"" + coordinate(x) + "\" x2=\"" + coordinate(x) + "\" y1=\"" +
                    coordinate(kTop) + "\" y2=\"" + coordinate(kTop + height) + "\"/>\n";
  const std::string at = "<text text-anchor=\"middle\" x=\"" + coordinate(x) + "\" y=\"";
  svg += at + coordinate(kTop - 16) + "\">" + escaped_html(shortened(axis.title(), 28)) +
         (axis.is_logarithmic() ? " (log)" : "") + "</text>\n";
  for (const auto& [place, text] : axis.marks()) {
    svg += "<text class=\"scale\" x=\"" + coordinate(x + 6) + "\" y=\"" + coordinate(kTop + (1 - place) * height + 4) +
           "\">" + escaped_html(shortened(text, 18)) + "</text>\n";
  }
  return svg;
}

std::string title_of_trial(const SweepTable& table, const SweepTable::Row& row) {
  std::string title = row.folder + ":";
  for (const auto& [key, value] : row.trial.values) title += " " + key + "=" + value;
  title += "; " + table.facts.metric + " " + in_figures(*row.trial.newest_figure(), kPageFigures);
  return without_secrets(title);
}

/// A line for each trial through its values, and last its figure.
std::string lines_html(const SweepTable& table) {
  const DrawnRows rows = drawn_rows(table);
  if (rows.empty()) return "<p>No trial has a figure yet.</p>\n";
  const std::vector<PageAxis> axes = axes_of(table, rows);
  const double height = kDrawnHeight - kTop - kBottom;
  const double apart = (kDrawnWidth - 2 * kSide) / std::max<double>(1, static_cast<double>(axes.size()) - 1);
  const auto x_of = [&](size_t axis) { return kSide + static_cast<double>(axis) * apart; };
  const std::string description = "parallel coordinates of " +
                                  counted(static_cast<int64_t>(rows.size()), "trial", "trials") +
                                  "; the numbers are in the table below";
  std::string svg =
      "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"parallel coordinates\"><svg class=\"lines\" "
      "role=\"img\" aria-label=\"" +
      escaped_html(description) + "\" viewBox=\"0 0 " + coordinate(kDrawnWidth) + " " + coordinate(kDrawnHeight) +
      "\">\n";
  const size_t num_good = (rows.size() + 9) / 10;
  for (size_t i = 0; i < rows.size(); ++i) {
    std::string path;
    for (size_t axis = 0; axis < axes.size(); ++axis) {
      path += (axis == 0 ? "M" : "L") + coordinate(x_of(axis)) + "," +
              coordinate(kTop + (1 - axes[axis].place(i)) * height);
    }
    const bool is_best = table.best && rows[i]->trial.id == table.rows[*table.best].trial.id;
    const std::string look = is_best ? " class=\"best\"" : i + num_good >= rows.size() ? " class=\"good\"" : "";
    svg += "<path" + look + " d=\"" + path + "\"><title>" + escaped_html(title_of_trial(table, *rows[i])) +
           "</title></path>\n";
  }
  for (size_t axis = 0; axis < axes.size(); ++axis) svg += axis_svg(axes[axis], x_of(axis), height);
  return svg + "</svg></div>\n<p class=\"note\">The best tenth of the trials is coloured, the best one thick.</p>\n";
}

std::string importance_html(const SweepTable& table) {
  std::vector<std::vector<std::string>> rows;
  for (const SweepTable::Importance& one : table.importance) {
    constexpr double kLongest = 12;  // em
    const std::string share = one.explained ? in_figures(100 * *one.explained, 3) + " %" : "cannot be told";
    const std::string bar =
        one.explained ? "<span class=\"share\" style=\"width: " + coordinate(kLongest * *one.explained) + "em\"></span>"
                      : "";
    rows.push_back({escaped_html(one.key), share, bar});
  }
  return "<h2>Importance</h2>\n<p>How much of the variance of " + escaped_html(table.facts.metric) +
         " over all trials with a figure each key explains by itself: the correlation ratio of its values (of many "
         "different numbers: of four groups by their size), corrected for their number (ε²). Keys that matter only "
         "together have small shares. Where a method searches near good values, the shares are of what it "
         "tried.</p>\n" +
         html_table("share of the variance that each key alone explains", {"key", "share", "bar"}, rows, "texts");
}

std::string trials_html(const SweepTable& table) {
  std::vector<std::string> heads = {"trial", "state"};
  for (const std::string& key : table.facts.keys) heads.push_back(escaped_html(key));
  heads.insert(heads.end(), {escaped_html(table.facts.metric), "step", "of these shared", "time", "remarks"});
  std::vector<std::vector<std::string>> rows;
  for (const SweepTable::Row& row : table.rows) {
    const SweepTrial& trial = row.trial;
    std::vector<std::string> cells = {row.folder, state_word(trial.state)};
    for (const auto& [key, value] : trial.values) cells.push_back(escaped_html(without_secrets(value)));
    const auto figure = trial.newest_figure();
    const bool is_best = table.best && trial.id == table.rows[*table.best].trial.id;
    const std::string origin =
        trial.origin ? grouped(trial.origin->step) + " of trial " + std::to_string(trial.origin->trial) : "";
    cells.insert(cells.end(), {figure ? in_figures(*figure, kPageFigures) : "", grouped(trial.step), origin,
                               duration(trial.seconds), is_best ? "best" : escaped_html(without_secrets(trial.why))});
    rows.push_back(std::move(cells));
  }
  return "<h2>Trials</h2>\n" + html_table("the trials, in the order in which they were chosen", heads, rows);
}

}  // namespace

std::string sweep_page(const SweepTable& table) {
  const std::string title = "sweep of " + table.facts.recipe;
  std::string body = "<header><h1>" + escaped_html(title) + "</h1>\n<p>" +
                     counted(static_cast<int64_t>(table.rows.size()), "trial", "trials") + " in " +
                     escaped_html(table.folder) + ", chosen by " + escaped_html(table.facts.method) + "; " +
                     escaped_html(table.facts.metric) +
                     (table.facts.better == MonitorMode::kMax ? ", the larger" : ", the smaller") + " the better. " +
                     grouped(table.steps_trained()) + " steps were trained, " + grouped(table.steps_shared()) +
                     " shared.</p></header>\n<main>\n";
  body += "<h2>Values and figures</h2>\n" + lines_html(table) + importance_html(table);
  if (table.best) {
    body +=
        "<h2>The best</h2>\n<pre tabindex=\"0\">" + escaped_lines(without_secrets(table.best_command())) + "</pre>\n";
  }
  body += trials_html(table) + "</main>\n<footer>Written by trainrun " TRAINRUN_VERSION ".</footer>\n";
  return to_html(HtmlPage{title, std::string(report_style()) + kLineStyle, body});
}

}  // namespace trainrun
