#pragma once

#include <string>

#include "runner/run/run_record.h"

namespace trainrun {

/// Runs as they are now: those that a process trains by what they say themselves (control/), the others by what they
/// left. Lines of at most `width` columns; 0: as wide as they are.
std::string live_table(const std::string& folder, const FoundRuns& found, size_t width);

}  // namespace trainrun
