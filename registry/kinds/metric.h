#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "registry/kinds/figures.h"
#include "registry/kinds/layer.h"

namespace trainrun {

/// An exact figure over a whole split, never an average of the batches' averages. What it keeps from the batches is
/// merged over ranks before `compute`: sums are added up, rows are gathered.
class Metric {
 public:
  virtual ~Metric() = default;
  /// Adds a batch: [output, target], or what `inputs:` names. Called without gradients.
  virtual void update(const Tensors& inputs) = 0;
  /// The figures over all batches since `reset`: one with an empty name ("eval/f1"), or several with names, such as "3"
  /// for class 3 ("eval/f1/3"). The names are the same before the first batch. An undefined figure is NaN.
  virtual Figures compute() const = 0;
  virtual void reset() = 0;
  /// Sums (float64 or int64; every rank has the same shapes) that are added up over ranks.
  virtual std::vector<at::Tensor> sums() const { return {}; }
  virtual void set_sums(const std::vector<at::Tensor>& sums) { static_cast<void>(sums); }
  /// Rows [n, …] that are concatenated over ranks, for figures that need every sample; n may differ between ranks, and
  /// be 0.
  virtual std::vector<at::Tensor> gathered() const { return {}; }
  virtual void set_gathered(const std::vector<at::Tensor>& rows) { static_cast<void>(rows); }
};

struct MetricCommon {
  std::optional<std::string> name;
  Names inputs;
  static void describe(Fields<MetricCommon>& f);
  void check(Checker& checker) const;
};

/// What a metric's `build` receives: examples of what `update` will read.
using MetricInputs = LayerInputs;

struct MetricKind {
  static constexpr const char* kName = "metric";
  using Inputs = MetricInputs;
  using Product = std::unique_ptr<Metric>;
  using Common = MetricCommon;
};
using MetricRegistry = Registry<MetricKind>;
const MetricRegistry& registry_of(const Catalog& catalog, MetricKind);

}  // namespace trainrun
