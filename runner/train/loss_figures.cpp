#include "runner/train/loss_figures.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>

#include <algorithm>

namespace trainrun {
namespace {

void add_weighted(at::Tensor& sum, const at::Tensor& loss, double times) {
  const at::Tensor number = number_of(loss, times);
  sum = sum.defined() ? sum + number : number;
}

}  // namespace

void EvaluatedLosses::add(const LossValue& losses, int64_t size) {
  const auto samples = static_cast<double>(size);
  if (losses.means.defined()) add_weighted(means_[0], losses.means, samples);
  if (losses.sums.defined()) add_weighted(sums_[0], losses.sums, 1);
  for (size_t i = 0; i < losses.parts.size(); ++i) {
    add_weighted((losses.parts_sum[i] ? sums_ : means_)[i + 1], losses.parts[i], losses.parts_sum[i] ? 1 : samples);
  }
  samples_ += samples;
}

std::vector<double> EvaluatedLosses::figures(ProcessGroup& group) const {
  Tensors added = means_;
  added.insert(added.end(), sums_.begin(), sums_.end());
  const auto known = std::find_if(added.begin(), added.end(), [](const at::Tensor& sum) { return sum.defined(); });
  const at::Tensor none = at::zeros({}, known == added.end() ? at::TensorOptions(at::kDouble) : known->options());
  for (at::Tensor& sum : added) sum = sum.defined() ? sum : none;
  const at::Tensor numbers = at::zeros({static_cast<int64_t>(added.size()) + 1}, at::kDouble);
  numbers.narrow(0, 0, numbers.numel() - 1).copy_(at::stack(added));
  numbers.select(0, numbers.numel() - 1).fill_(samples_);
  group.sum({numbers}, "the loss");
  const auto* value = numbers.const_data_ptr<double>();
  std::vector<double> figures;
  for (size_t i = 0; i < means_.size(); ++i) {
    figures.push_back(value[i] / value[added.size()] + value[means_.size() + i]);
  }
  return figures;
}

}  // namespace trainrun
