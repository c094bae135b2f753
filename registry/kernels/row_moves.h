#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace trainrun::kernels {

/// x [R, …] at `rows` ([K] int64, each once): [K, …]; with a gradient of any order. As at::index_select, whose gradient
/// adds one row after the other.
at::Tensor taken_rows(const at::Tensor& x, const at::Tensor& rows);

/// The other way: [num_rows, …] that has x [K, …] at `rows`, and zeros elsewhere; with a gradient of any order.
at::Tensor put_rows(const at::Tensor& x, const at::Tensor& rows, int64_t num_rows);

}  // namespace trainrun::kernels
