#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "registry/kinds/unlabelled_data.h"

namespace trainrun {

/// Of which rows the last window of a series is made, as the data set Windows has it.
struct LastWindow {
  int64_t length = 0;
  int64_t horizon = 0;
  std::optional<std::string> group;  // the column whose equal values are one series
  std::optional<std::string> time;   // the column of the rows' times
  std::vector<std::string> known;    // columns whose future is known beforehand
};

/// Opens rows, as DatasetFacts::unlabelled does.
using OpenRows = std::function<std::unique_ptr<UnlabelledData>(const UnlabelledSource& source)>;
/// Makes windows of rows of which each series is one window: `length` rows and the `horizon` after them.
using MakeWindows = std::function<std::unique_ptr<Dataset>(std::unique_ptr<Dataset> rows)>;

/// A sample for each series in `source`'s files: its last rows, from which what comes next is forecast. A series ends with
/// its last row that has a target; rows after it, whose target is empty, give the columns that are known beforehand and
/// the times of what comes. Several files are several series. Beside each step of a forecast stand the file, the group,
/// the time, and the number of the step. `source` is that of the windows, not of their rows. Rows are read whole into
/// memory. Throws DataError where a series is too short, has a gap in its last window, or lacks what is known beforehand;
/// `source.broken` leaves such a series out.
std::unique_ptr<UnlabelledData> read_last_windows(const UnlabelledSource& source, LastWindow window,
                                                  const OpenRows& open_rows, MakeWindows make_windows);

}  // namespace trainrun
