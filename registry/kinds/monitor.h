#pragma once

#include <string>

#include "registry/language/parameters.h"

namespace trainrun {

/// Whether smaller or larger values of a watched figure are better.
enum class MonitorMode { kMin, kMax };
template <>
struct Words<MonitorMode> {
  static constexpr std::array kWords = {"min", "max"};
};

/// Which figure of the evaluations is watched, and which way it is better: the parameters `monitor` and `mode`. A recipe
/// that leaves `mode` out gets it, while it is loaded, from the metric (metric_details.h).
struct Monitored {
  std::string monitor = "eval/loss";
  MonitorMode mode = MonitorMode::kMin;

  template <class T>
  static void describe_monitor(Fields<T>& f) {
    f.optional("monitor", &Monitored::monitor).doc("the figure to monitor at each evaluation");
    describe_mode(f);
  }
  template <class T>
  static void describe_mode(Fields<T>& f) {
    f.optional("mode", &Monitored::mode)
        .doc(
            "whether a smaller or a larger figure is better; by default a smaller loss is better, and each metric "
            "declares which of its values are better, such as a larger accuracy");
  }
  /// Whether `value` is better than `other`; false if either is NaN.
  bool is_better(double value, double other) const { return mode == MonitorMode::kMin ? value < other : value > other; }
  /// What is added to a figure that becomes better.
  double sign() const { return mode == MonitorMode::kMin ? -1 : 1; }
};

}  // namespace trainrun
