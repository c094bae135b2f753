#include "registry/kinds/metric_details.h"

namespace trainrun {

std::optional<MonitorMode> DetailedMetric::better(const std::string&) const { return std::nullopt; }
void DetailedMetric::name_labels(const std::vector<std::string>&) {}
void DetailedMetric::name_classes(const std::vector<std::string>&) {}
std::string DetailedMetric::left_out() const { return ""; }

std::optional<MonitorMode> better_of(const Metric& metric, const std::string& figure) {
  const auto* detailed = dynamic_cast<const DetailedMetric*>(&metric);
  return detailed ? detailed->better(figure) : std::nullopt;
}

void name_labels(Metric& metric, const std::vector<std::string>& names) {
  if (auto* detailed = dynamic_cast<DetailedMetric*>(&metric)) detailed->name_labels(names);
}

void name_classes(Metric& metric, const std::vector<std::string>& names) {
  if (auto* detailed = dynamic_cast<DetailedMetric*>(&metric)) detailed->name_classes(names);
}

std::string left_out_of(const Metric& metric) {
  const auto* detailed = dynamic_cast<const DetailedMetric*>(&metric);
  return detailed ? detailed->left_out() : "";
}

}  // namespace trainrun
