#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace trainrun {

/// How much of the variance of a figure the groups that the values of one key make explain by themselves: ε², the
/// correlation ratio corrected for the number of groups (Kelley 1935), from 0 to 1. `values`: of each trial, equal ones
/// form a group; where there are many different numbers, four groups of about equal size by their order. Nothing where
/// that cannot be told: fewer than two groups, or as many as there are trials.
std::optional<double> explained_variance(const std::vector<std::string>& values, const std::vector<double>& figures);

}  // namespace trainrun
