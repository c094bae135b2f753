#pragma once

#include <ATen/core/Tensor.h>

namespace trainrun {

/// The correlation of the ranks of two rows of numbers [n], float64, of which equal ones share a rank; NaN where one row
/// is constant.
double spearman_of(const at::Tensor& first, const at::Tensor& second);

}  // namespace trainrun
