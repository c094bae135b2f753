#pragma once

#include <cstdint>

namespace trainrun::kernels {

constexpr int64_t kPanel = 32;  // columns of a product that are computed together (small_products.h)

}  // namespace trainrun::kernels
