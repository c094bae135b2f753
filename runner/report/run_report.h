#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "registry/catalog.h"
#include "runner/report/run_diff.h"
#include "runner/report/run_evaluation.h"
#include "runner/report/run_table.h"
#include "runner/report/suspect_labels.h"
#include "runner/run/run_record.h"

namespace trainrun {

/// The lines of one kind in a run's metrics.jsonl, by columns.
struct LoggedLines {
  struct Column {
    std::string figure;          // "train/loss"
    std::vector<double> values;  // of each line; NaN where it has none, or one that was not finite
  };
  std::vector<int64_t> steps;
  std::vector<double> seconds;
  std::vector<Column> columns;
  int64_t logged = 0;  // lines that there are in the file

  const Column* find(const std::string& figure) const;
  void add(const MetricLine& line);
  /// Keeps `most` lines, about evenly spread: of each stretch those with the least and the greatest `figure`, or without
  /// a finite one, and the first and the last line of all.
  void thin(size_t most, const std::string& figure);
};

struct ReportedRun {
  std::string label;  // unique among the runs
  RunRecord record;
  std::string recipe;  // the text of its recipe.yaml, without secrets
  LoggedLines train, eval;
  std::optional<RunEvaluation> evaluation;
  std::optional<SuspectLabels> suspects;  // of a run with the callback SampleLosses
};

/// What a page of runs shows.
struct RunReport {
  std::vector<ReportedRun> runs;
  std::vector<RunTable::Key> keys;  // that differ
  std::vector<RunDiff> diffs;       // of the first run and each other one
  std::vector<std::string> notes;
};

/// Reads the runs in these folders. Throws Error where one is not that of a run.
RunReport read_report(const std::vector<std::string>& folders, Catalog& catalog);

/// One HTML file that needs no other and no network. `is_watched`: it asks where it comes from for newer figures.
std::string to_html(const RunReport& report, bool is_watched = false);
/// What a page that is watched asks for: JSON with the figures, the charts, and the tables of states.
std::string watched_data(const RunReport& report);

}  // namespace trainrun
