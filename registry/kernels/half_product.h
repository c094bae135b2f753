#pragma once

#include <cstdint>
#include <string>

namespace trainrun::kernels {

/// From now on ATen multiplies matrices of bfloat16 and float16 in float32, wherever it has no quicker way on this
/// processor: both factors are widened, MKL multiplies, and each number of the result is rounded once. ATen's own loop
/// sums in float32, too, but one number at a time: on processors without instructions for bfloat16 (AVX-512) or float16,
/// products, convolutions and recurrent layers take ten to a hundred times as long by it. Only the order of sums differs.
/// Takes at most 12 MB beside the tensors, for each thread that multiplies. To be called before the first such product, once;
/// returns why nothing is changed, or "".
std::string multiply_halves_in_float32();

/// How many products were computed so.
int64_t num_products_of_halves();

}  // namespace trainrun::kernels
