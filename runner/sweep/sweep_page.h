#pragma once

#include <string>

#include "runner/sweep/sweep_table.h"

namespace trainrun {

/// The table as one HTML file: each trial a line through its values (parallel coordinates), how much of the figure each
/// key decides, and all numbers. It needs no script.
std::string sweep_page(const SweepTable& table);

}  // namespace trainrun
