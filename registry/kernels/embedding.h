#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace trainrun::kernels {

/// at::embedding(table, indices, padding_idx), [N, …, features]: the rows of a table [V, features] that `indices` [N, …]
/// name, with a gradient for all but those at `padding_idx` (-1: for all). Where `uses_own_products()`, and the table has a
/// gradient in the backward pass already (of an output layer with the same weights, of the batch before in the same step),
/// the rows' gradients are added to it, one after the other, instead of a table of zeros with them.
at::Tensor embedding(const at::Tensor& table, const at::Tensor& indices, int64_t padding_idx);

}  // namespace trainrun::kernels
