#pragma once

#include <functional>
#include <string>
#include <vector>

namespace trainrun {

/// When the rows of some series were: in the order of the series, one after another.
struct SeriesTimes {
  std::vector<std::string> texts;  // dates, with or without a time of day, or numbers
  std::vector<int64_t> ends;       // of each series in `texts`, ascending
  /// Where the time in `texts` number `i` was read: "sales.csv:17:day".
  std::function<std::string(size_t i)> place;
};

/// Where steps of time are missing.
struct TimeGaps {
  std::vector<int64_t> starts;     // the first row behind each gap
  std::vector<std::string> texts;  // of each: "sales.csv:17:day: 2 steps of 1 day are missing after 2024-05-30"
};

/// A step is the most frequent distance from a row to the next; between dates that all are of one day of the month, or the
/// last of theirs, it is counted in months. Throws DataError where a time cannot be read, may be of two forms, or is not
/// after that of the row before in its series.
TimeGaps find_gaps(const SeriesTimes& times);

/// The times of the `count` steps after the last row of each series, one series after another, written as the times are.
/// Empty where there are no two rows to tell a step by. Throws as find_gaps does.
std::vector<std::string> times_after(const SeriesTimes& times, int64_t count);

}  // namespace trainrun
