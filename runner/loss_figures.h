#pragma once

#include <string>
#include <vector>

#include "runner/distributed/process_group.h"
#include "runner/recipe.h"

namespace trainrun {

/// "PREFIX/loss/NAME" of each loss, where there are several.
std::vector<std::string> loss_part_names(const Recipe& recipe, const std::string& prefix);

/// sums += weight * values
void add_weighted(std::vector<double>& sums, const std::vector<at::Tensor>& values, double weight);

/// Adds up a step's loss, and its parts, over ranks.
double sum_over_ranks(ProcessGroup& group, double loss, std::vector<double>& parts);

}  // namespace trainrun
