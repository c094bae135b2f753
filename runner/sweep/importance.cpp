#include "runner/sweep/importance.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "registry/language/value.h"

namespace trainrun {
namespace {

constexpr size_t kGroups = 4;

/// The group of each trial: by its value, or by the rank of its number where there are more numbers than twice as many
/// groups.
std::vector<size_t> groups_of(const std::vector<std::string>& values) {
  std::map<std::string, size_t> names;
  bool are_numbers = true;
  for (const std::string& value : values) {
    names.emplace(value, names.size());
    are_numbers = are_numbers && parse_number(value).has_value();
  }
  std::vector<size_t> groups(values.size());
  if (!are_numbers || names.size() <= 2 * kGroups) {
    for (size_t i = 0; i < values.size(); ++i) groups[i] = names.at(values[i]);
    return groups;
  }
  std::vector<double> sorted;
  for (const auto& [name, number] : names) sorted.push_back(*parse_number(name));
  std::ranges::sort(sorted);
  for (size_t i = 0; i < values.size(); ++i) {
    const auto rank = static_cast<size_t>(std::ranges::lower_bound(sorted, *parse_number(values[i])) - sorted.begin());
    groups[i] = rank * kGroups / sorted.size();
  }
  return groups;
}

}  // namespace

std::optional<double> explained_variance(const std::vector<std::string>& values, const std::vector<double>& figures) {
  const std::vector<size_t> groups = groups_of(values);
  std::map<size_t, std::pair<double, double>> sums;  // of figures, and how many
  for (size_t i = 0; i < figures.size(); ++i) {
    sums[groups[i]].first += figures[i];
    sums[groups[i]].second += 1;
  }
  if (sums.size() < 2 || sums.size() >= figures.size()) return std::nullopt;
  const auto count = static_cast<double>(figures.size());
  const double mean = std::accumulate(figures.begin(), figures.end(), 0.0) / count;
  double within = 0, all = 0;
  for (size_t i = 0; i < figures.size(); ++i) {
    const auto& [sum, of_group] = sums.at(groups[i]);
    within += std::pow(figures[i] - sum / of_group, 2);
    all += std::pow(figures[i] - mean, 2);
  }
  if (!(all > 0) || !std::isfinite(all)) return std::nullopt;
  const double left = count - static_cast<double>(sums.size());
  return std::max(0.0, 1 - within / left / (all / (count - 1)));
}

}  // namespace trainrun
