#pragma once

#include <optional>
#include <string>

#include "runner/recipe/choices.h"

namespace trainrun {

/// FLOP/s that the maker states for dense matrix products on the GPU called `name`, as its driver writes it, in the
/// precision that a recipe computes in; nothing for a GPU that is not in the table.
std::optional<double> peak_flops(const std::string& name, MixedPrecision precision, bool tf32);

}  // namespace trainrun
