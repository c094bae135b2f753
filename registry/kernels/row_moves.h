#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace trainrun::kernels {

/// x [R, …] at `rows` ([K] int64, each once, from the smallest to the largest): [K, …], x itself where that is all of it;
/// with a gradient of any order. As at::index_select, whose gradient adds one row after the other.
at::Tensor taken_rows(const at::Tensor& x, const at::Tensor& rows);

/// The other way: [num_rows, …] that has x [K, …] at `rows`, and zeros elsewhere; with a gradient of any order.
at::Tensor put_rows(const at::Tensor& x, const at::Tensor& rows, int64_t num_rows);

/// Of sequences x [N, T, …] the positions whose numbers n * T + t are in `rows`: [K, …].
at::Tensor taken_positions(const at::Tensor& x, const at::Tensor& rows);

/// The other way: [N, T, …] that has x at `rows`, and zeros elsewhere. x: [1, K, …] or [K, 1, …]. `sizes`: a tensor
/// [N, T, …].
at::Tensor put_positions(const at::Tensor& x, const at::Tensor& rows, const at::Tensor& sizes);

}  // namespace trainrun::kernels
