#pragma once

namespace trainrun::kernels {

/// From now on, or no longer, kernels may compute products of matrices that are neither convolutions nor attention
/// themselves. Not before: numbers are ATen's then, to the last bit.
void use_own_products(bool whether);
bool uses_own_products();

}  // namespace trainrun::kernels
