#pragma once

#include <string>

namespace trainrun {

/// Which instructions LibTorch's matrix products (MKL) use here, for reports: "MKL, as on Intel's processors".
std::string matrix_products_text();

}  // namespace trainrun
