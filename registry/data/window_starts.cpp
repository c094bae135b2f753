#include "registry/data/window_starts.h"

#include <algorithm>
#include <iterator>

#include "registry/kinds/dataset_facts.h"

namespace trainrun {
namespace {

/// How many windows there are among `rows` rows.
int64_t windows_among(const WindowGrid& grid, int64_t rows) {
  const int64_t room = rows - grid.length - grid.horizon;
  return room < 0 ? 0 : room / grid.stride + 1;
}

/// The last windows of the series from `begin` to `end`. Where one would reach over a split, none takes its place: it
/// would lie before the rows that are held out of training.
void add_origins(const WindowGrid& grid, const SeriesCuts& cuts, int64_t begin, int64_t end, WindowStarts& found) {
  const int64_t length = grid.length + grid.horizon;
  const int64_t all = windows_among(grid, end - begin);
  const int64_t count = std::min(all, *grid.origins);
  ++found.num_series;
  if (count == 0) ++found.too_short;
  if (count > 0 && count < *grid.origins) ++found.fewer_origins;
  found.num_origins += count;
  for (int64_t i = count - 1; i >= 0; --i) {
    const int64_t start = end - length - i * grid.stride;
    const auto split = std::upper_bound(cuts.splits.begin(), cuts.splits.end(), start);
    if (split != cuts.splits.end() && *split < start + length) {
      ++found.cut_origins;
    } else {
      found.starts.push_back(start);
    }
  }
}

/// All windows from `begin` to `end`, of which a series, or what splits make of it, consists.
void add_all(const WindowGrid& grid, int64_t begin, int64_t end, WindowStarts& found) {
  const int64_t count = windows_among(grid, end - begin);
  ++found.num_series;
  if (count == 0) ++found.too_short;
  for (int64_t i = 0; i < count; ++i) found.starts.push_back(begin + i * grid.stride);
}

}  // namespace

SeriesCuts SeriesCuts::of(const Dataset& rows, int64_t num_rows) {
  const DatasetFacts facts = rows.facts();
  SeriesCuts cuts;
  cuts.ends = facts.series_starts();
  cuts.ends.push_back(num_rows);
  std::vector<int64_t> holes;
  for (const DatasetFacts::Hole& hole : facts.holes(rows.info().target)) {
    if (hole.before > 0 && hole.before < num_rows) holes.push_back(hole.before);
  }
  cuts.split_at(holes);
  const auto is_end = [&](int64_t split) { return std::ranges::binary_search(cuts.ends, split); };
  std::erase_if(cuts.splits, is_end);  // a row that is left out at an edge of a file parts nothing
  return cuts;
}

void SeriesCuts::split_at(const std::vector<int64_t>& places) {
  splits.insert(splits.end(), places.begin(), places.end());
  std::sort(splits.begin(), splits.end());
  splits.erase(std::unique(splits.begin(), splits.end()), splits.end());
}

WindowStarts find_window_starts(const WindowGrid& grid, const SeriesCuts& cuts) {
  WindowStarts found;
  int64_t begin = 0;
  for (const int64_t end : cuts.ends) {
    const int64_t limit = end - grid.holdout;
    if (grid.origins) {
      add_origins(grid, cuts, begin, limit, found);
    } else {
      for (const int64_t split : cuts.splits) {
        if (split <= begin || split >= limit) continue;
        add_all(grid, begin, split, found);
        begin = split;
      }
      add_all(grid, begin, limit, found);
    }
    begin = end;
  }
  return found;
}

}  // namespace trainrun
