#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <vector>

#include "registry/kinds/metric_details.h"

namespace trainrun {

/// A metric that says which way all of its figures are better, and whose figures may be called by labels.
class KnownMetric : public Metric, public DetailedMetric {
 public:
  using Better = std::optional<MonitorMode>;
  explicit KnownMetric(Better better) : better_(better) {}
  /// From now on figures are of labels, and may be called after them.
  void set_num_labels(int64_t count) { num_labels_ = static_cast<size_t>(count); }

  std::optional<MonitorMode> better(const std::string&) const override { return better_; }
  void name_labels(const std::vector<std::string>& names) override {
    if (names.size() == num_labels_) labels_ = names;
  }

 protected:
  /// The figures, in whose names the number of a label ("3", "3/0/1") is the label's name, if it has one.
  Figures with_label_names(Figures figures) const;
  /// Its name, or its number.
  std::string label_name(int64_t label) const {
    return labels_.empty() ? std::to_string(label) : labels_.at(static_cast<size_t>(label));
  }

 private:
  Better better_;
  size_t num_labels_ = 0;
  std::vector<std::string> labels_;
};

/// A metric that follows from sums over all samples.
class SumMetric : public KnownMetric {
 public:
  using Add = std::function<at::Tensor(const Tensors&)>;
  using Finish = std::function<Figures(const std::vector<double>&)>;
  /// `add`: the sums of one batch, of shape `sizes`; `finish`: the figures that follow from all, row by row.
  SumMetric(Better better, std::vector<int64_t> sizes, Add add, Finish finish);

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
class GatherMetric : public KnownMetric {
 public:
  using Rows = std::function<Tensors(const Tensors&)>;
  using Finish = std::function<Figures(const Tensors&)>;
  /// `empty`: tensors [0, …] of what is kept; `take`: the rows of one batch; `finish`: the figures that follow from
  /// all.
  GatherMetric(Better better, Tensors empty, Rows take, Finish finish, Rows merge = nullptr);

  void update(const Tensors& inputs) override;
  Figures compute() const override { return with_label_names(finish_(gathered())); }
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
