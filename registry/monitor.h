#pragma once

#include "registry/codec.h"

namespace trainrun {

/// Whether smaller or larger values of a watched figure are better.
enum class MonitorMode { kMin, kMax };
template <>
struct Words<MonitorMode> {
  static constexpr std::array kWords = {"min", "max"};
};

/// Whether `value` is better than `other`; false if either is NaN.
inline bool is_better(double value, double other, MonitorMode mode) {
  return mode == MonitorMode::kMin ? value < other : value > other;
}

}  // namespace trainrun
