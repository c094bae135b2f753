#pragma once

#include <ATen/core/Tensor.h>

#include "registry/kernels/cpu_path.h"

namespace trainrun::kernels {

/// Whether `left`, as the gradient of what a ReLU read, holds so many zeros that its products with matrices of `columns`
/// columns, itself or turned on the left, are computed sooner by passing over them: a matrix of float32, on a processor
/// with AVX-512, where they were measured (Zen 4). A rule of sizes and numbers, so that a job computes the same on every
/// start. Never where `own_products.h` leaves products to ATen.
bool has_many_zeros(const at::Tensor& left, int64_t columns);

/// left [M, K] times right [K, N], all of float32 on the CPU; `left` or left.t(), and `right`, without gaps. The numbers
/// of `left` that are 0 are passed over, so that an infinity or a NaN that only these meet does not come through; else
/// equal to at::mm but for the order of sums. Written to `to` where it is defined: [M, N] without gaps. `path` forces the
/// instructions, for tests: it must be available.
at::Tensor sparse_product(const at::Tensor& left, const at::Tensor& right, const at::Tensor& to = {},
                          CpuPath path = best_cpu_path());

}  // namespace trainrun::kernels
