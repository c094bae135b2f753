#pragma once

#include <ATen/core/Tensor.h>

#include <string>

namespace trainrun {

/// Reads an IDX file of bytes, plain or gzip, into a uint8 tensor: [N, rows, columns] of images, [N] of labels. Throws
/// DataError that names the file: no IDX, of another type, not `num_dims` dimensions, longer or shorter than its header
/// says. Source: LeCun, Cortes, Burges, "The MNIST database of handwritten digits", section "File formats".
at::Tensor read_idx(const std::string& path, int64_t num_dims);

}  // namespace trainrun
