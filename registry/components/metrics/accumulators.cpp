#include "registry/components/metrics/accumulators.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <string_view>

namespace trainrun {

Figures KnownMetric::with_label_names(Figures figures) const {
  for (auto& [name, value] : figures) {
    if (labels_.empty() || name.empty()) continue;
    const size_t end = std::min(name.find('/'), name.size());
    const auto label = parse_integer(std::string_view(name).substr(0, end));
    if (label) name = labels_.at(static_cast<size_t>(*label)) + name.substr(end);
  }
  return figures;
}

SumMetric::SumMetric(Better better, std::vector<int64_t> sizes, Add add, Finish finish)
    : KnownMetric(better), sizes_(std::move(sizes)), add_(std::move(add)), finish_(std::move(finish)) {
  SumMetric::reset();
}

void SumMetric::update(const Tensors& inputs) { sums_.add_(add_(inputs).to(sums_.device(), at::kDouble)); }

Figures SumMetric::compute() const { return with_label_names(finish_(numbers_of(sums_))); }

void SumMetric::reset() { sums_ = at::zeros(sizes_, at::kDouble); }

GatherMetric::GatherMetric(Better better, Tensors empty, Rows take, Finish finish, Rows merge)
    : KnownMetric(better),
      empty_(std::move(empty)),
      take_(std::move(take)),
      finish_(std::move(finish)),
      merge_(std::move(merge)) {
  GatherMetric::reset();
}

void GatherMetric::update(const Tensors& inputs) {
  Tensors rows = take_(inputs);
  for (size_t i = 0; i < rows.size(); ++i) rows[i] = rows[i].to(empty_[i].device(), empty_[i].scalar_type());
  parts_.push_back(std::move(rows));
  if (merge_) parts_ = {merge_(gathered())};
}

std::vector<at::Tensor> GatherMetric::gathered() const {
  Tensors all;
  for (size_t i = 0; i < empty_.size(); ++i) {
    Tensors rows;
    for (const Tensors& part : parts_) rows.push_back(part.at(i));
    all.push_back(rows.size() == 1 ? rows[0] : at::cat(rows));
  }
  return all;
}

at::Tensor sum_and_count(const at::Tensor& hits) {
  const at::Tensor sum = hits.sum().to(at::kDouble);
  return at::stack({sum, at::full({}, static_cast<double>(hits.numel()), sum.options())});
}

double mean_of(const std::vector<double>& sums) { return sums[1] == 0 ? 0 : sums[0] / sums[1]; }

std::vector<double> numbers_of(const at::Tensor& tensor) {
  const at::Tensor numbers = tensor.to(at::kCPU, at::kDouble).contiguous();
  const auto* data = numbers.const_data_ptr<double>();
  return {data, data + numbers.numel()};
}

}  // namespace trainrun
