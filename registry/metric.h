#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "registry/layer.h"

namespace trainrun {

/// A figure over a whole split, from exact sums: never an average of the batches' averages.
class Metric {
 public:
  virtual ~Metric() = default;
  /// Adds a batch: [output, target], or what `inputs:` names. Called without gradients.
  virtual void update(const Tensors& inputs) = 0;
  /// The figures over all batches since `reset`: one with an empty name for "eval/accuracy", or several named ones
  /// ("eval/f1_macro").
  virtual std::vector<std::pair<std::string, double>> compute() const = 0;
  virtual void reset() = 0;
  /// Sums (float64 or int64) that are added up over ranks before `compute`.
  virtual std::vector<at::Tensor> sums() const = 0;
  virtual void set_sums(const std::vector<at::Tensor>& sums) = 0;
};

struct MetricCommon {
  Names inputs;
  static void describe(Fields<MetricCommon>& f);
};

struct MetricInputs {};

struct MetricKind {
  static constexpr const char* kName = "metric";
  using Inputs = MetricInputs;
  using Product = std::unique_ptr<Metric>;
  using Common = MetricCommon;
};
using MetricRegistry = Registry<MetricKind>;
const MetricRegistry& registry_of(const Catalog& catalog, MetricKind);

}  // namespace trainrun
