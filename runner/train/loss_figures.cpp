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

EvaluatedLosses::EvaluatedLosses(const Recipe& recipe)
    : means_(1 + (recipe.loss.size() > 1 ? recipe.loss.size() : 0)), sums_(means_.size()) {
  for (const Component<LossKind>& loss : recipe.loss) {
    places_.emplace_back();
    if (!counted_targets(loss)) continue;
    places_.back() = targets_.size();
    targets_.push_back(0);
  }
  counted_.resize(targets_.size());
  counted_own_.resize(targets_.size());
}

void EvaluatedLosses::add(const LossValue& losses, int64_t size, const TargetCounts& targets) {
  const auto samples = static_cast<double>(size);
  if (losses.means.defined()) add_weighted(means_[0], losses.means, samples);
  if (losses.sums.defined()) add_weighted(sums_[0], losses.sums, 1);
  for (size_t i = 0; i < targets.size(); ++i) {
    add_weighted(counted_[i], losses.counted[i], targets[i]);
    targets_[i] += targets[i];
  }
  for (size_t i = 0; i < losses.parts.size(); ++i) {
    const LossValue::Part& part = losses.parts[i];
    if (part.counted) {
      add_weighted(counted_own_[*part.counted], part.loss, targets[*part.counted]);
    } else {
      add_weighted((part.is_sum ? sums_ : means_)[i + 1], part.loss, part.is_sum ? 1 : samples);
    }
  }
  samples_ += samples;
}

std::vector<double> EvaluatedLosses::figures(ProcessGroup& group) const {
  Tensors added = means_;
  for (const Tensors* more : {&sums_, &counted_, &counted_own_}) added.insert(added.end(), more->begin(), more->end());
  const auto known = std::find_if(added.begin(), added.end(), [](const at::Tensor& sum) { return sum.defined(); });
  const at::Tensor none = at::zeros({}, known == added.end() ? at::TensorOptions(at::kDouble) : known->options());
  for (at::Tensor& sum : added) sum = sum.defined() ? sum : none;
  const size_t num_counting = targets_.size();
  const at::Tensor numbers = at::zeros({static_cast<int64_t>(added.size() + 1 + num_counting)}, at::kDouble);
  auto* number = numbers.mutable_data_ptr<double>();
  numbers.narrow(0, 0, static_cast<int64_t>(added.size())).copy_(at::stack(added));
  number[added.size()] = samples_;
  std::copy(targets_.begin(), targets_.end(), number + added.size() + 1);
  group.sum({numbers}, "the loss");
  const double* sums = number + means_.size();
  const double* counted = sums + sums_.size();
  const double* counted_own = counted + num_counting;
  const double samples = number[added.size()];
  const double* targets = number + added.size() + 1;
  std::vector<double> figures;
  for (size_t i = 0; i < means_.size(); ++i) figures.push_back(number[i] / samples + sums[i]);
  for (size_t k = 0; k < num_counting; ++k) figures[0] += counted[k] / targets[k];
  for (size_t i = 1; i < figures.size(); ++i) {
    if (const auto place = places_[i - 1]) figures[i] = counted_own[*place] / targets[*place];
  }
  return figures;
}

}  // namespace trainrun
