#include "runner/report/label_copies.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/zeros_like.h>

#include <cmath>

namespace trainrun {
namespace {

constexpr double kAlike = 0.9999;      // a correlation, of either sign
constexpr int64_t kFewestSamples = 8;  // among fewer, columns may be alike by chance

const at::Tensor* field_of(const Batch& batch, const std::string& name) {
  for (const Batch::Field& field : batch.fields()) {
    if (field.name == name) return &field.tensor;
  }
  return nullptr;
}

}  // namespace

void LabelCopies::add(const Batch& batch, const std::string& target) {
  const at::Tensor* given = field_of(batch, target);
  if (given == nullptr || given->numel() != batch.size() || batch.size() == 0) return;
  const at::Tensor targets = given->to(at::kDouble).reshape({-1, 1});
  if (count_ == 0) first_target_ = targets[0].item<double>();
  const at::Tensor y = targets - first_target_;
  for (const Batch::Field& field : batch.fields()) {
    if (field.name == target || field.tensor.dim() != 2 || !field.tensor.is_floating_point()) continue;
    const at::Tensor columns = field.tensor.to(at::kDouble);
    Sums& sums = fields_[field.name];
    if (!sums.first.defined()) {
      sums.first = columns[0].clone();
      sums.values = sums.squares = sums.products = at::zeros_like(sums.first);
    }
    sums.is_ragged = sums.is_ragged || sums.first.sizes() != columns[0].sizes();
    if (sums.is_ragged) continue;
    const at::Tensor x = columns - sums.first;
    sums.values = sums.values + x.sum(0);
    sums.squares = sums.squares + x.square().sum(0);
    sums.products = sums.products + (x * y).sum(0);
  }
  targets_ += y.sum().item<double>();
  target_squares_ += y.square().sum().item<double>();
  count_ += batch.size();
}

std::vector<std::string> LabelCopies::names(
    const std::function<std::vector<std::string>(const std::string& field)>& names_of) const {
  std::vector<std::string> found;
  if (count_ < kFewestSamples) return found;
  const auto count = static_cast<double>(count_);
  const double target_spread = target_squares_ - targets_ * targets_ / count;
  for (const auto& [field, sums] : fields_) {
    if (sums.is_ragged) continue;
    const at::Tensor spreads = sums.squares - sums.values.square() / count;
    const at::Tensor alike = (sums.products - sums.values * targets_ / count).abs();
    const std::vector<std::string> known = names_of(field);
    for (int64_t i = 0; i < alike.numel(); ++i) {
      const double size = std::sqrt(spreads[i].item<double>() * target_spread);
      if (!(size > 0) || !(alike[i].item<double>() > kAlike * size)) continue;
      const auto place = static_cast<size_t>(i);
      found.push_back(place < known.size() ? known[place] : field + "[" + std::to_string(i) + "]");
    }
  }
  return found;
}

}  // namespace trainrun
