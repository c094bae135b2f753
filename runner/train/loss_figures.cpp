#include "runner/train/loss_figures.h"

#include <ATen/ops/tensor.h>

namespace trainrun {

void add_parts(std::vector<double>& sums, const LossValue& losses, double weight) {
  sums.resize(losses.parts.size());
  for (size_t i = 0; i < sums.size(); ++i) {
    sums[i] += (losses.parts_sum[i] ? 1 : weight) * losses.parts[i].item<double>();
  }
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

void EvaluatedLosses::add(const LossValue& losses, int64_t size) {
  const auto samples = static_cast<double>(size);
  if (losses.means.defined()) means_[0] += samples * losses.means.item<double>();
  if (losses.sums.defined()) sums_[0] += losses.sums.item<double>();
  for (size_t i = 0; i < losses.parts.size(); ++i) {
    const auto part = losses.parts[i].item<double>();
    (losses.parts_sum[i] ? sums_ : means_)[i + 1] += losses.parts_sum[i] ? part : samples * part;
  }
  samples_ += samples;
}

void EvaluatedLosses::merge(ProcessGroup& group) {
  const auto count = static_cast<std::ptrdiff_t>(means_.size());
  std::vector<double> numbers = means_;
  numbers.insert(numbers.end(), sums_.begin(), sums_.end());
  samples_ = sum_over_ranks(group, samples_, numbers);
  means_.assign(numbers.begin(), numbers.begin() + count);
  sums_.assign(numbers.begin() + count, numbers.end());
}

}  // namespace trainrun
