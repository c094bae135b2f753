#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "registry/kinds/dataset.h"

namespace trainrun {

/// Where rows, series after series, have to be parted.
struct SeriesCuts {
  std::vector<int64_t> ends;    // of each series, ascending
  std::vector<int64_t> splits;  // within series: no window may reach over one. Ascending

  /// Of `rows`, each of which follows the one before but where another series begins, or where rows are left out.
  static SeriesCuts of(const Dataset& rows, int64_t num_rows);
  void split_at(const std::vector<int64_t>& places);
};

/// What the recipe says of windows.
struct WindowGrid {
  int64_t length = 0;
  int64_t horizon = 1;
  int64_t stride = 1;
  int64_t holdout = 0;
  std::optional<int64_t> origins = std::nullopt;
};

/// Where windows begin.
struct WindowStarts {
  std::vector<int64_t> starts;
  int64_t num_series = 0;     // with what splits make of them, unless origins are asked for
  int64_t too_short = 0;      // of these
  int64_t fewer_origins = 0;  // of these, those that have fewer than are asked for
  int64_t num_origins = 0;
  int64_t cut_origins = 0;  // of these, those whose window would reach over a split
};

/// `holdout` and `origins` count from the end of each series, and not of the pieces that splits make of it.
WindowStarts find_window_starts(const WindowGrid& grid, const SeriesCuts& cuts);

}  // namespace trainrun
