#include "runner/loss_figures.h"

#include <ATen/ops/tensor.h>

#include "registry/figure_name.h"

namespace trainrun {

std::vector<std::string> loss_part_names(const Recipe& recipe, const std::string& prefix) {
  if (recipe.loss.size() < 2) return {};
  std::vector<std::string> names = figure_names(recipe.loss);
  for (std::string& name : names)
    name = prefix + "/loss/" + name;  // NOLINT(performance-inefficient-string-concatenation)
  return names;
}

void add_weighted(std::vector<double>& sums, const std::vector<at::Tensor>& values, double weight) {
  sums.resize(values.size());
  for (size_t i = 0; i < values.size(); ++i) sums[i] += weight * values[i].item<double>();
}

double sum_over_ranks(ProcessGroup& group, double loss, std::vector<double>& parts) {
  std::vector<double> numbers = parts;
  numbers.push_back(loss);
  const at::Tensor sums = at::tensor(numbers, at::kDouble);
  group.sum({sums}, "the loss");
  const auto* values = sums.const_data_ptr<double>();
  std::copy(values, values + parts.size(), parts.begin());
  return values[parts.size()];
}

}  // namespace trainrun
