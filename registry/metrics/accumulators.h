#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <vector>

#include "registry/metric.h"

namespace trainrun {

/// A metric that follows from sums over all samples.
class SumMetric : public Metric {
 public:
  using Add = std::function<at::Tensor(const Tensors&)>;
  using Finish = std::function<Figures(const std::vector<double>&)>;
  /// `add`: the sums of one batch, of shape `sizes`; `finish`: the figures that follow from all, row by row.
  SumMetric(std::vector<int64_t> sizes, Add add, Finish finish);

  void update(const Tensors& inputs) override;
  Figures compute() const override;
  void reset() override;
  std::vector<at::Tensor> sums() const override { return {sums_}; }
  void set_sums(const std::vector<at::Tensor>& sums) override { sums_ = sums.at(0); }

 private:
  std::vector<int64_t> sizes_;
  Add add_;
  Finish finish_;
  at::Tensor sums_;  // float64: counts are exact up to 2^53
};

/// A metric that keeps rows of all batches; `merge`, where given, makes few rows of many.
class GatherMetric : public Metric {
 public:
  using Rows = std::function<Tensors(const Tensors&)>;
  using Finish = std::function<Figures(const Tensors&)>;
  /// `empty`: tensors [0, …] of what is kept; `take`: the rows of one batch; `finish`: the figures that follow from
  /// all.
  GatherMetric(Tensors empty, Rows take, Finish finish, Rows merge = nullptr);

  void update(const Tensors& inputs) override;
  Figures compute() const override { return finish_(gathered()); }
  void reset() override { parts_ = {empty_}; }
  std::vector<at::Tensor> gathered() const override;
  void set_gathered(const std::vector<at::Tensor>& rows) override { parts_ = {rows}; }

 private:
  Tensors empty_;
  Rows take_;
  Finish finish_;
  Rows merge_;
  std::vector<Tensors> parts_;
};

/// [sum of `hits`, how many]: [2] float64, for a SumMetric.
at::Tensor sum_and_count(const at::Tensor& hits);
/// What sum_and_count counted; over no sample it is 0.
double mean_of(const std::vector<double>& sums);

/// The numbers of a tensor, row by row.
std::vector<double> numbers_of(const at::Tensor& tensor);

}  // namespace trainrun
