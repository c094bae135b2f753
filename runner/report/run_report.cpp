#include "runner/report/run_report.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <set>

#include "registry/formats/files/file_io.h"
#include "runner/base/secrets.h"
#include "runner/train/run_change.h"

namespace trainrun {
namespace {

constexpr uint64_t kMostRecipeBytes = uint64_t{64} << 20;
constexpr size_t kMostNumbers = 150'000;  // of all curves: some 3 MB

/// The last part of the path, or all of it where others end alike.
std::vector<std::string> labels_of(const std::vector<std::string>& folders) {
  std::vector<std::string> labels;
  for (const std::string& folder : folders) {
    const std::filesystem::path path = std::filesystem::path(folder).lexically_normal();
    labels.push_back((path.has_filename() ? path : path.parent_path()).filename().string());
  }
  const std::vector<std::string> plain = labels;
  for (size_t i = 0; i < labels.size(); ++i) {
    if (std::ranges::count(plain, plain[i]) > 1) labels[i] = folders[i];
  }
  return labels;
}

size_t count_numbers(const ReportedRun& run) {
  return run.train.steps.size() * (run.train.columns.size() + 2) +
         run.eval.steps.size() * (run.eval.columns.size() + 2);
}

/// Thins curves so that the page stays small; says of which runs.
void thin(RunReport& report) {
  constexpr size_t kLeast = 200;
  size_t all = 0;
  for (const ReportedRun& run : report.runs) all += count_numbers(run);
  if (all <= kMostNumbers) return;
  const size_t of_run = kMostNumbers / report.runs.size();
  for (ReportedRun& run : report.runs) {
    if (count_numbers(run) <= of_run) continue;
    const size_t columns = run.train.columns.size() + run.eval.columns.size() + 4;
    const size_t most = std::max(kLeast, of_run / columns);
    run.train.thin(most, "train/loss");
    run.eval.thin(most, run.eval.columns.empty() ? "" : run.eval.columns[0].figure);
  }
}

void note_thinned(RunReport& report) {
  for (const ReportedRun& run : report.runs) {
    for (const LoggedLines* lines : {&run.train, &run.eval}) {
      const auto drawn = static_cast<int64_t>(lines->steps.size());
      if (drawn == lines->logged) continue;
      report.notes.push_back(run.label + ": of " + std::to_string(lines->logged) + " logged lines of " +
                             (lines == &run.train ? "training" : "evaluations") + ", " + std::to_string(drawn) +
                             " are drawn: of each stretch those with the least and the greatest loss");
    }
  }
}

}  // namespace

const LoggedLines::Column* LoggedLines::find(const std::string& figure) const {
  const auto found = std::ranges::find(columns, figure, &Column::figure);
  return found == columns.end() ? nullptr : &*found;
}

void LoggedLines::add(const MetricLine& line) {
  const size_t before = steps.size();
  steps.push_back(line.step);
  seconds.push_back(line.seconds);
  ++logged;
  for (const auto& [figure, value] : line.figures) {
    auto column = std::ranges::find(columns, figure, &Column::figure);
    if (column == columns.end()) {
      columns.push_back({figure, std::vector<double>(before, NAN)});
      column = columns.end() - 1;
    }
    column->values.push_back(value);
  }
  for (Column& column : columns) column.values.resize(steps.size(), NAN);
}

void LoggedLines::thin(size_t most, const std::string& figure) {
  const size_t count = steps.size();
  const Column* watched = find(figure);
  if (count <= most) return;
  const size_t stretch = (2 * count + most - 1) / most;
  std::set<size_t> kept = {0, count - 1};
  for (size_t begin = 0; begin < count; begin += stretch) {
    const size_t end = std::min(begin + stretch, count);
    size_t least = begin, greatest = end - 1;
    for (size_t i = begin; watched && i < end; ++i) {
      const double value = watched->values[i];
      const double top = watched->values[greatest];
      if (std::isnan(value) || (!std::isnan(top) && value > top)) greatest = i;
      if (value < watched->values[least] || std::isnan(watched->values[least])) least = i;
    }
    kept.insert(least);
    kept.insert(greatest);
  }
  const auto take = [&]<class Number>(std::vector<Number>& numbers) {
    std::vector<Number> chosen;
    for (const size_t i : kept) chosen.push_back(numbers[i]);
    numbers = std::move(chosen);
  };
  take(steps);
  take(seconds);
  for (Column& column : columns) take(column.values);
}

RunReport read_report(const std::vector<std::string>& folders, Catalog& catalog) {
  RunReport report;
  const std::vector<std::string> labels = labels_of(folders);
  std::vector<RunRecord> records;
  for (size_t i = 0; i < folders.size(); ++i) {
    if (!holds_run(folders[i])) throw Error(folders[i] + " is not a run's folder (recipe.yaml, log.txt)");
    ReportedRun run;
    run.label = labels[i];
    run.record = read_run(folders[i], catalog,
                          [&](const MetricLine& line) { (line.is_evaluation ? run.eval : run.train).add(line); });
    run.recipe = without_secrets(read_file(folders[i] + "/recipe.yaml", kMostRecipeBytes));
    if (run.train.steps.empty() && run.eval.steps.empty()) {
      report.notes.push_back(run.label + " has no figures to draw: its metrics.jsonl is missing or empty");
    }
    for (const std::string& note : run.record.notes) report.notes.push_back(note);
    for (const RunChange& change : changes_of_run(folders[i], run.record.state_json)) {
      report.notes.push_back(run.label + ": trainrun ctl changed " + change_text(change));
    }
    run.suspects = read_suspect_labels(folders[i], catalog);
    records.push_back(run.record);
    report.runs.push_back(std::move(run));
  }
  report.keys = differing_keys(records);
  for (size_t i = 1; i < folders.size(); ++i) {
    report.diffs.push_back(compare_sides(read_side(folders[0], catalog), read_side(folders[i], catalog), catalog));
  }
  thin(report);
  note_thinned(report);
  return report;
}

}  // namespace trainrun
