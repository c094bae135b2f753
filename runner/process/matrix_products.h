#pragma once

#include <string>

namespace trainrun {

/// Has MKL use all that an AMD processor can do; returns why it will not, or "". Before the first matrix product.
std::string use_all_of_amd();

/// Has kernels::linear compute products of few rows by itself; returns why it will not, or "".
std::string use_own_products();

/// Has LibTorch multiply bfloat16 and float16 by float32's products where it has no quicker way; returns why it will not,
/// or "". Before the first such product.
std::string use_float32_for_halves();

/// Which instructions LibTorch's matrix products (MKL) use here, for reports: "MKL, as on Intel's processors".
std::string matrix_products_text();

}  // namespace trainrun
