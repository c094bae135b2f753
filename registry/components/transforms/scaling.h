#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <string>
#include <vector>

namespace trainrun {

/// How numbers were scaled, entry by entry of one dimension, or all alike where there is one of each: a number x became
/// (x - offset) / scale.
struct Scaling {
  std::vector<double> scale;
  std::vector<double> offset;
  int64_t dims_behind = 0;  // that dimension: 0: the last one; 1: the last but one, …
};

/// `values` [..., K, …] before they were scaled: float64. K is the number of scales, or any where there is one.
at::Tensor in_units(const Scaling& scaling, const at::Tensor& values);
/// Standard deviations or other differences [..., K, …], which have no offset.
at::Tensor differences_in_units(const Scaling& scaling, const at::Tensor& values);

/// A transform that scales numbers so that there is a way back to their units.
class ScalesNumbers {
 public:
  virtual ~ScalesNumbers() = default;
  /// How it scales the numbers of `field`, whose samples have `dims` dimensions, once it has learnt; nothing: it leaves
  /// them as they are.
  virtual std::optional<Scaling> scaling(const std::string& field, int64_t dims) const = 0;
};

}  // namespace trainrun
