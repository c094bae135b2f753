#include "runner/train/loss_figures.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include <algorithm>

namespace trainrun {
namespace {

void add_weighted(at::Tensor& sum, const at::Tensor& loss, double times) { add_to(sum, number_of(loss, times)); }

/// `loss` is the mean over `targets`; over none it is not a number.
void add_counted(at::Tensor& sum, const at::Tensor& loss, const at::Tensor& targets) {
  add_to(sum, at::where(targets > 0, number_of(loss) * targets, 0));
}

}  // namespace

EvaluatedLosses::EvaluatedLosses(const Model& model) : places_(model.counting_places(LossUse::kEvaluation)) {
  means_.resize(1 + (places_.size() > 1 ? places_.size() : 0));
  sums_.resize(means_.size());
  for (Tensors* sums : {&counted_, &counted_own_, &targets_}) {
    sums->resize(static_cast<size_t>(
        std::count_if(places_.begin(), places_.end(), [](const auto& place) { return place.has_value(); })));
  }
}

void EvaluatedLosses::add(const LossValue& losses, int64_t size) {
  const auto samples = static_cast<double>(size);
  if (losses.means.defined()) add_weighted(means_[0], losses.means, samples);
  if (losses.sums.defined()) add_weighted(sums_[0], losses.sums, 1);
  for (size_t i = 0; i < losses.targets.size(); ++i) {
    add_counted(counted_[i], losses.counted[i], losses.targets[i]);
    add_to(targets_[i], losses.targets[i]);
  }
  for (size_t i = 0; i < losses.parts.size(); ++i) {
    const LossValue::Part& part = losses.parts[i];
    if (part.counted) {
      add_counted(counted_own_[*part.counted], part.loss, losses.targets[*part.counted]);
    } else {
      add_weighted((part.is_sum ? sums_ : means_)[i + 1], part.loss, part.is_sum ? 1 : samples);
    }
  }
  samples_ += samples;
}

std::vector<double> EvaluatedLosses::figures(ProcessGroup& group) const {
  Tensors added = means_;
  for (const Tensors* more : {&sums_, &counted_, &counted_own_, &targets_})
    added.insert(added.end(), more->begin(), more->end());
  const auto known = std::find_if(added.begin(), added.end(), [](const at::Tensor& sum) { return sum.defined(); });
  const at::Tensor none = at::zeros({}, known == added.end() ? at::TensorOptions(at::kDouble) : known->options());
  for (at::Tensor& sum : added) sum = sum.defined() ? sum : none;
  const size_t num_counting = targets_.size();
  const at::Tensor numbers = at::zeros({static_cast<int64_t>(added.size() + 1)}, at::kDouble);
  auto* number = numbers.mutable_data_ptr<double>();
  numbers.narrow(0, 0, static_cast<int64_t>(added.size())).copy_(at::stack(added));
  number[added.size()] = samples_;
  group.sum({numbers}, "the loss");
  const double* sums = number + means_.size();
  const double* counted = sums + sums_.size();
  const double* counted_own = counted + num_counting;
  const double* targets = counted_own + num_counting;
  const double samples = number[added.size()];
  std::vector<double> figures;
  for (size_t i = 0; i < means_.size(); ++i) figures.push_back(number[i] / samples + sums[i]);
  for (size_t k = 0; k < num_counting; ++k) figures[0] += counted[k] / targets[k];
  for (size_t i = 1; i < figures.size(); ++i) {
    if (const auto place = places_[i - 1]) figures[i] = counted_own[*place] / targets[*place];
  }
  return figures;
}

}  // namespace trainrun
