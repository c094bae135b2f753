// The page of a report: tables and texts as HTML, and as data what its script draws.
#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <set>

#include "registry/language/text_forms.h"
#include "runner/base/secrets.h"
#include "runner/base/text.h"
#include "runner/report/page/evaluation_html.h"
#include "runner/report/page/html.h"
#include "runner/report/page/page_assets.h"
#include "runner/report/run_report.h"

namespace trainrun {
namespace {

using nlohmann::ordered_json;
using Rows = std::vector<std::vector<std::string>>;

std::string number_text(const std::optional<double>& number) { return number ? in_figures(*number, 5) : ""; }

/// "loss" of "train/loss" and "eval/loss".
std::string figure_base(const std::string& figure) { return figure.substr(figure.find('/') + 1); }

/// What a chart is called, for people.
std::string title_of(const std::string& base) {
  static const std::map<std::string, std::string> titles = {{"lr", "learning rate"},
                                                            {"samples_per_second", "samples per second"},
                                                            {"loss_avg", "mean loss since the line before"},
                                                            {"grad_norm", "norm of the gradients"},
                                                            {"tokens_per_second", "tokens per second"},
                                                            {"mfu", "share of the device's peak FLOP/s"}};
  const auto found = titles.find(base);
  return found == titles.end() ? base : found->second;
}

/// Losses first, then what evaluations say, then the rest of training.
std::vector<std::string> bases_of(const RunReport& report) {
  std::vector<std::string> bases;
  const auto add = [&](const LoggedLines& lines, bool losses) {
    for (const LoggedLines::Column& column : lines.columns) {
      const std::string base = figure_base(column.figure);
      const bool is_loss = base == "loss" || base.starts_with("loss/");
      if (is_loss == losses && std::ranges::count(bases, base) == 0) bases.push_back(base);
    }
  };
  for (const bool losses : {true, false}) {
    for (const ReportedRun& run : report.runs) add(run.eval, losses);
    for (const ReportedRun& run : report.runs) add(run.train, losses);
  }
  std::ranges::stable_sort(bases, {}, [](const std::string& base) { return base == "loss" ? 0 : 1; });
  return bases;
}

ordered_json finite_or_null(const std::vector<double>& values) {
  ordered_json list = ordered_json::array();
  for (const double value : values) list.push_back(std::isfinite(value) ? ordered_json(value) : ordered_json());
  return list;
}

ordered_json lines_json(const LoggedLines& lines) {
  ordered_json json = {
      {"step", lines.steps}, {"seconds", finite_or_null(lines.seconds)}, {"figures", ordered_json::object()}};
  for (const LoggedLines::Column& column : lines.columns)
    json["figures"][column.figure] = finite_or_null(column.values);
  return json;
}

std::vector<ChartOnPage> figure_charts(const RunReport& report) {
  std::vector<ChartOnPage> charts;
  for (const std::string& base : bases_of(report)) {
    ChartOnPage chart{title_of(base), {{"title", title_of(base)}, {"y", base}, {"figures", true}}};
    ordered_json series = ordered_json::array();
    std::set<std::string> figures;
    for (size_t i = 0; i < report.runs.size(); ++i) {
      for (const auto& [split, lines] :
           {std::pair("train", &report.runs[i].train), std::pair("eval", &report.runs[i].eval)}) {
        for (const LoggedLines::Column& column : lines->columns) {
          if (figure_base(column.figure) != base) continue;
          const std::string run = report.runs.size() > 1 ? report.runs[i].label + ": " : "";
          series.push_back({{"run", i}, {"split", split}, {"figure", column.figure}, {"label", run + column.figure}});
          figures.insert(column.figure);
        }
      }
    }
    chart.data["series"] = series;
    chart.description = "curves of " + join({figures.begin(), figures.end()}) + " over the steps of " +
                        counted(static_cast<int64_t>(report.runs.size()), "run", "runs") +
                        "; the numbers are in the table below";
    charts.push_back(std::move(chart));
  }
  return charts;
}

constexpr const char* kControls = R"(<section class="bar" aria-label="how charts are drawn"><div>
<label>smoothing <input type="range" id="smoothing" min="0" max="0.99" step="0.01" value="0"> <output id="smoothing-value" for="smoothing">0</output></label>
<label><input type="checkbox" id="log"> logarithmic</label>
<label>over <select id="axis"><option value="step">steps</option><option value="seconds">seconds</option></select></label>
<button type="button" id="theme">light / dark</button>
</div></section>
)";

std::string legend_html(const RunReport& report) {
  std::string html = "<fieldset class=\"runs\"><legend>runs that are drawn</legend>\n";
  for (size_t i = 0; i < report.runs.size(); ++i) {
    const std::string number = std::to_string(i);
    html += "<label><input type=\"checkbox\" checked value=\"" + number + "\"><span class=\"swatch\" data-run=\"" +
            number + "\"></span>" + escaped_html(report.runs[i].label) + "</label>\n";
  }
  return html + "</fieldset>\n";
}

std::string state_html(const RunRecord& run) {
  return escaped_html(state_word(run.state) + (run.why.empty() ? "" : " (" + without_secrets(run.why) + ")"));
}

std::string runs_html(const RunReport& report) {
  Rows rows;
  for (const ReportedRun& run : report.runs) {
    const RunRecord& record = run.record;
    const std::string best = record.best ? record.best->name + " " + in_figures(record.best->value, 5) : "";
    const std::string at = record.best && record.best->step ? grouped(*record.best->step) : "";
    rows.push_back({escaped_html(run.label), state_html(record), record.step ? grouped(*record.step) : "",
                    record.epoch ? grouped(*record.epoch) : "", escaped_html(best), at, number_text(record.loss),
                    record.seconds ? duration(*record.seconds) : "", time_text(record.changed)});
  }
  return html_table("the runs, as their folders have them",
                    {"run", "state", "step", "epoch", "best", "at step", "train/loss", "time taken", "last change"},
                    rows);
}

std::string last_figures_html(const RunReport& report) {
  std::vector<std::string> names;
  for (const ReportedRun& run : report.runs) {
    for (const auto& figure : run.record.evaluation) {
      if (std::ranges::count(names, figure.first) == 0) names.push_back(figure.first);
    }
  }
  if (names.empty()) return "";
  std::vector<std::string> heads = {"figure"};
  for (const ReportedRun& run : report.runs) heads.push_back(escaped_html(run.label));
  Rows rows;
  for (const std::string& name : names) {
    std::vector<std::string> row = {escaped_html(name)};
    for (const ReportedRun& run : report.runs) {
      const auto found = std::ranges::find(run.record.evaluation, name, &Figures::value_type::first);
      row.push_back(found == run.record.evaluation.end() ? "" : in_figures(found->second, 6));
    }
    rows.push_back(std::move(row));
  }
  return html_table("the last evaluation", heads, rows);
}

std::string part_text(double part, double whole) {
  return duration(part) + (whole > 0 ? " (" + in_figures(100 * part / whole, 3) + " %)" : "");
}

/// Where the time went, and what the memory held: of runs that are over.
std::string resources_html(const RunReport& report) {
  Rows rows;
  for (const ReportedRun& run : report.runs) {
    const nlohmann::json& summary = run.record.summary;
    const nlohmann::json& state = run.record.state_json;
    const nlohmann::json& source = summary.is_object() ? summary : state;
    if (!source.is_object() || !source.contains("seconds")) continue;
    const auto whole = source.value("seconds", 0.0);
    const nlohmann::json parts = source.value("seconds_of", nlohmann::json::object());
    std::vector<std::string> row = {escaped_html(run.label), duration(whole)};
    if (parts.contains("evaluations")) {
      const auto evaluations = parts.value("evaluations", 0.0), checkpoints = parts.value("checkpoints", 0.0);
      row.insert(row.end(), {part_text(whole - evaluations - checkpoints, whole), part_text(evaluations, whole),
                             part_text(checkpoints, whole)});
    } else {
      row.insert(row.end(), 3, "");
    }
    const nlohmann::json ranks = source.value("ranks", nlohmann::json::array());
    for (const char* key : {"parameters_bytes", "gradients_bytes", "optimizer_state_bytes"}) {
      double bytes = 0;
      for (const nlohmann::json& rank : ranks) bytes = std::max(bytes, rank.value(key, 0.0));
      row.push_back(ranks.empty() ? "" : bytes_text(bytes));
    }
    const bool has_gpu = source.contains("peak_gpu_memory");
    row.push_back(has_gpu ? bytes_text(source["peak_gpu_memory"].get<double>()) : "");
    rows.push_back(std::move(row));
  }
  if (rows.empty()) return "";
  return "<h2>Time and memory</h2>\n" + html_table("where the time went, and the most that a rank held",
                                                   {"run", "all", "training", "evaluations", "checkpoints",
                                                    "parameters", "gradients", "optimizer", "GPU, at most"},
                                                   rows);
}

std::string keys_html(const RunReport& report) {
  Rows rows;
  for (const RunTable::Key& key : report.keys) {
    std::vector<std::string> row = {escaped_html(key.path)};
    for (const std::string& value : key.values) {
      const bool differs = value != key.values[0];
      row.push_back(differs ? "<span class=\"differs\">" + escaped_html(value) + "</span>" : escaped_html(value));
    }
    rows.push_back(std::move(row));
  }
  std::vector<std::string> heads = {"key"};
  for (const ReportedRun& run : report.runs) heads.push_back(escaped_html(run.label));
  return html_table("keys of the recipes that differ; ≠: from the first run's", heads, rows, "texts");
}

/// What the difference from the first run means, run by run.
std::string meaning_html(const RunReport& report) {
  std::string html;
  for (size_t i = 0; i < report.diffs.size(); ++i) {
    std::vector<std::string> breaking;
    for (const RunDiff::Change& change : report.diffs[i].changes) {
      if (change.breaks_resume()) breaking.push_back(change.path);
    }
    for (const std::string& data : report.diffs[i].data) breaking.push_back(data);
    const std::string& first = report.runs[0].label;
    html += "<li>" + escaped_html(report.runs[i + 1].label) + ": " +
            escaped_html(breaking.empty()
                             ? "its recipe would go on with " + first
                             : "another run than " + first + ", by " + join_first(breaking, 8, LeftOut::kCount)) +
            "</li>\n";
  }
  return html.empty() ? "" : "<ul>\n" + html + "</ul>\n";
}

std::string differences_html(const RunReport& report) {
  if (report.runs.size() < 2) return "";
  std::string html = "<h2>What differs between the runs</h2>\n";
  html += report.keys.empty() ? "<p>Their recipes differ in nothing but names and places.</p>\n" : keys_html(report);
  return html + meaning_html(report);
}

std::string environment_html(const RunReport& report) {
  std::vector<std::string> names;
  std::vector<std::map<std::string, std::string>> of_runs;
  for (const ReportedRun& run : report.runs) {
    auto& own = of_runs.emplace_back();
    for (const char* key : {"versions", "machine"}) {
      if (!run.record.state_json.is_object()) break;
      const nlohmann::json facts = run.record.state_json.value(key, nlohmann::json::object());
      for (const auto& [name, value] : facts.items()) {
        own[name] = value.is_string() ? value.get<std::string>() : value.dump();
        if (std::ranges::count(names, name) == 0) names.push_back(name);
      }
    }
  }
  if (names.empty()) return "<h2>Environment</h2>\n<p>It is not known: no run has a checkpoint.</p>\n";
  std::vector<std::string> heads = {""};
  for (const ReportedRun& run : report.runs) heads.push_back(escaped_html(run.label));
  Rows rows;
  for (const std::string& name : names) {
    std::vector<std::string> row = {escaped_html(name)};
    for (auto& own : of_runs) row.push_back(escaped_html(own[name]));
    rows.push_back(std::move(row));
  }
  return "<h2>Environment</h2>\n" + html_table("by the newest checkpoint of each run", heads, rows, "texts");
}

/// For a POSIX shell.
std::string shell_quoted(const std::string& word) {
  constexpr const char* kPlain = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-./+,:@";
  if (!word.empty() && word.find_first_not_of(kPlain) == std::string::npos && word.front() != '-') return word;
  std::string text;
  for (const char letter : word) text += letter == '\'' ? std::string("'\\''") : std::string(1, letter);
  return "'" + text + "'";
}

std::string recipes_html(const RunReport& report) {
  std::string html = "<h2>Recipes, and how to repeat the runs</h2>\n";
  for (const ReportedRun& run : report.runs) {
    const std::string folder = shell_quoted(run.record.path);
    const std::string commands = "trainrun " + shell_quoted(run.record.path + "/recipe.yaml") +
                                 "   # again, into a folder beside it\ntrainrun eval " + folder + "\n";
    const bool is_open = report.runs.size() == 1;
    html += "<details" + std::string(is_open ? " open" : "") + "><summary>" + escaped_html(run.label) +
            "</summary>\n<pre tabindex=\"0\">" + escaped_lines(commands) + "</pre>\n<pre tabindex=\"0\">" +
            escaped_lines(run.recipe) + "</pre></details>\n";
  }
  return html;
}

std::string suspects_html(const RunReport& report) {
  std::string html;
  for (const ReportedRun& run : report.runs) {
    if (!run.suspects) continue;
    const SuspectLabels& suspects = *run.suspects;
    Rows rows;
    for (const SuspectLabels::One& one : suspects.highest) {
      rows.push_back({grouped(one.number), escaped_html(one.place), escaped_html(one.label), in_figures(one.mean, 4),
                      std::isnan(one.last) ? "" : in_figures(one.last, 4)});
    }
    const std::string caption = run.label + ": the samples whose losses stayed highest, " +
                                std::to_string(rows.size()) + " of " + grouped(suspects.samples) + "; means over " +
                                counted(suspects.epochs, "epoch", "epochs") + ", whose median over all samples is " +
                                in_figures(suspects.median, 4);
    html += html_table(caption, {"sample", "place", "label", "mean loss", "last loss"}, rows);
    for (const std::string& note : suspects.notes) html += "<p class=\"note\">" + escaped_html(note) + "</p>\n";
  }
  if (html.empty()) return "";
  return "<h2>Suspect labels</h2>\n<p>A label that is wrong keeps its sample's loss high for as long as the model "
         "learns from the others. A sample that is merely hard does so as well: look at them.</p>\n" +
         html;
}

std::string notes_html(const std::vector<std::string>& notes) {
  if (notes.empty()) return "";
  std::string html = "<ul class=\"note\">\n";
  for (const std::string& note : notes) html += "<li>" + escaped_html(without_secrets(note)) + "</li>\n";
  return html + "</ul>\n";
}

/// How the runs stand: what changes while they go on.
std::string states_html(const RunReport& report) { return runs_html(report) + last_figures_html(report); }

ordered_json data_json(const RunReport& report, ordered_json charts) {
  ordered_json data = {{"runs", ordered_json::array()}, {"charts", std::move(charts)}};
  for (const ReportedRun& run : report.runs) {
    data["runs"].push_back({{"name", run.label}, {"train", lines_json(run.train)}, {"eval", lines_json(run.eval)}});
  }
  return data;
}

}  // namespace

std::string watched_data(const RunReport& report) {
  PageCharts charts;
  for (const ChartOnPage& chart : figure_charts(report)) charts.add(chart);
  ordered_json data = data_json(report, charts.take());
  data["states"] = states_html(report);
  return data.dump(-1, ' ', false, ordered_json::error_handler_t::replace);
}

std::string to_html(const RunReport& report, bool is_watched) {
  PageCharts charts;
  const std::string title =
      report.runs.size() == 1 ? report.runs[0].label : std::to_string(report.runs.size()) + " runs";
  std::string body = "<a class=\"skip\" href=\"#curves\">to the curves</a>\n<header><h1>" + escaped_html(title) +
                     "</h1>\n" + (is_watched ? "<p id=\"watched\" role=\"status\"></p>\n" : "") +
                     notes_html(report.notes) + "</header>\n" + kControls + "<main>\n" + legend_html(report) +
                     "<div id=\"states\">" + states_html(report) + "</div>\n";
  body += "<h2 id=\"curves\">Curves</h2>\n<div class=\"charts\">\n";
  const std::vector<ChartOnPage> figures = figure_charts(report);
  for (const ChartOnPage& chart : figures) body += charts.add(chart);
  body += "</div>\n";
  if (figures.empty()) body += "<p>There are no figures to draw.</p>\n";
  body += differences_html(report);
  for (size_t i = 0; i < report.runs.size(); ++i) {
    if (report.runs[i].evaluation) body += evaluation_html(report.runs[i].label, *report.runs[i].evaluation, charts);
  }
  body +=
      suspects_html(report) + resources_html(report) + environment_html(report) + recipes_html(report) + "</main>\n";
  body += "<footer>Written by trainrun " TRAINRUN_VERSION "; charts by Chart.js (MIT licence).</footer>\n";
  ordered_json data = data_json(report, charts.take());
  if (is_watched) data["watched"] = true;
  body += "<script type=\"application/json\" id=\"data\">" + script_json(data) + "</script>\n";
  return to_html(HtmlPage{title + ": trainrun report",
                          std::string(report_style()),
                          body,
                          {std::string(chart_library()), std::string(report_script())},
                          is_watched});
}

}  // namespace trainrun
