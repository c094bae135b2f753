#pragma once

#include <string>
#include <utility>
#include <vector>

namespace trainrun {

/// Figures by name, in a fixed order: {"eval/loss", 0.05}, {"eval/accuracy", 0.98}.
using Figures = std::vector<std::pair<std::string, double>>;

}  // namespace trainrun
