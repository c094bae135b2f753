#pragma once

#include <optional>
#include <string>
#include <vector>

#include "registry/kinds/metric.h"
#include "registry/kinds/monitor.h"

namespace trainrun {

/// What a metric may tell besides its figures. A plugin's metric may be one, too. Ask by the functions below, which serve
/// any metric.
class DetailedMetric {
 public:
  virtual ~DetailedMetric() = default;
  virtual std::optional<MonitorMode> better(const std::string& figure) const;
  virtual void name_labels(const std::vector<std::string>& names);
  virtual std::string left_out() const;
  virtual void name_classes(const std::vector<std::string>& names);
};

/// Which way the figure that `compute` calls so is better. Nothing: whoever watches it must say `mode`.
std::optional<MonitorMode> better_of(const Metric& metric, const std::string& figure);
/// What the labels are called that targets [N, L] hold: the names of figures of single labels, instead of "0" to
/// "L - 1". To be told before any batch.
void name_labels(Metric& metric, const std::vector<std::string>& names);
/// What the classes are called that targets hold, by their numbers. Told where the data know it: if a recipe lists them,
/// before the names of figures are asked for, else before the first batch.
void name_classes(Metric& metric, const std::vector<std::string>& names);
/// After `compute`: what its figures leave out, as a sentence; "" where that is nothing.
std::string left_out_of(const Metric& metric);

}  // namespace trainrun
