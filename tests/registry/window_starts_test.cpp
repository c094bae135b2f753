#include "registry/data/window_starts.h"

#include <cstdint>
#include <vector>

#include "tests/doctest.h"

namespace trainrun {
namespace {

using Starts = std::vector<int64_t>;

TEST_CASE("windows of series without splits: all, what is held out, and the last origins") {
  const SeriesCuts cuts{{6, 10}, {}};
  CHECK(find_window_starts({2, 1, 1}, cuts).starts == Starts{0, 1, 2, 3, 6, 7});
  CHECK(find_window_starts({2, 1, 1, 2}, cuts).starts == Starts{0, 1});
  CHECK(find_window_starts({2, 1, 1, 2}, cuts).too_short == 1);
  CHECK(find_window_starts({2, 1, 1, 0, 1}, cuts).starts == Starts{3, 7});
  const WindowStarts few = find_window_starts({2, 1, 1, 0, 3}, cuts);
  CHECK(few.starts == Starts{1, 2, 3, 6, 7});
  CHECK(few.fewer_origins == 1);
}

TEST_CASE("holdout and origins count from the end of the series, whatever pieces splits make of it") {
  const SeriesCuts cuts{{20}, {5, 12}};
  const WindowStarts held = find_window_starts({2, 1, 1, 10}, cuts);  // of rows 0 to 9
  CHECK(held.starts == Starts{0, 1, 2, 5, 6, 7});
  CHECK(held.num_series == 2);
  CHECK(held.too_short == 0);
  CHECK(find_window_starts({2, 1, 2, 0, 3}, cuts).starts == Starts{13, 15, 17});
  const WindowStarts cut = find_window_starts({2, 1, 2, 0, 5}, cuts);  // 9 would be followed by 11 to 13
  CHECK(cut.starts == Starts{9, 13, 15, 17});
  CHECK(cut.cut_origins == 1);
  CHECK(cut.num_origins == 5);
  CHECK(cut.fewer_origins == 0);
}

TEST_CASE("no origin lies before the rows that are held out for it") {
  const SeriesCuts cuts{{20}, {16, 18}};
  const WindowStarts found = find_window_starts({2, 1, 1, 0, 3}, cuts);
  CHECK(found.starts.empty());
  CHECK(found.cut_origins == 3);
}

}  // namespace
}  // namespace trainrun
