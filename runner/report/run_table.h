#pragma once

#include <nlohmann/json.hpp>

#include <optional>
#include <string>
#include <vector>

#include "registry/catalog.h"
#include "runner/run/run_record.h"

namespace trainrun {

/// A table of runs, and what of their recipes tells them apart.
struct RunTable {
  /// A key of the recipes in which the runs differ.
  struct Key {
    std::string path;                 // "optimizer.lr"
    std::vector<std::string> values;  // of each run; "" where its recipe has none
    bool changes_run = true;          // else: paths, logging, speed
  };
  std::string folder;
  std::vector<RunRecord> runs;
  size_t num_passed_over = 0;               // runs for which a filter does not hold
  std::vector<Key> keys;                    // by their paths
  std::optional<std::vector<Key>> columns;  // that were asked for: these alone are shown beside the runs' paths
  std::vector<std::string> damaged;
  std::vector<std::string> foreign;
  std::vector<std::string> notes;  // what filters left out for want of a value, and what of runs could not be read
};

/// A condition that runs are chosen by: "optimizer.lr>1e-3".
struct RunFilter {
  std::string key;
  std::string relation;  // = != < <= > >=
  std::string value;
};
/// Reads "optimizer.lr>1e-3 and state=finished". Throws Error where it is not one.
std::vector<RunFilter> parse_filters(const std::string& text);

struct RunTableOptions {
  std::vector<RunFilter> filters;
  std::string sort;                       // a key; "": by path
  bool descending = false;                // largest first
  std::vector<std::string> columns = {};  // keys to show; none: those that differ, as many as fit
};

/// Finds the runs in and below `folder`, chooses and sorts them. Keys are those of a recipe (a default, where it is not
/// written), figures of the last evaluation (eval/loss), and name, path, state, step, epoch, loss, best, seconds, when.
/// Throws Error for a key that no run has.
RunTable make_run_table(const std::string& folder, const RunTableOptions& options, const Catalog& catalog);

/// Rows of at most `width` columns, 0: as wide as they are; the keys first in which the most pairs of runs differ. What
/// does not fit is counted and named; columns that were asked for are shown however wide. `wraps`: the lines below the
/// table are no wider either.
std::string to_text(const RunTable& table, size_t width, bool wraps = true);
nlohmann::ordered_json to_json(const RunTable& table);

/// The keys in which the recipes of `runs` differ, but for their names and where they lie.
std::vector<RunTable::Key> differing_keys(const std::vector<RunRecord>& runs);

/// A value of a recipe on one line, without secrets.
std::string value_text(const Value& value);
/// "2026-11-26 01:18", local time.
std::string time_text(int64_t seconds);

}  // namespace trainrun
