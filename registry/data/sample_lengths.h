#pragma once

#include <span>

#include "registry/kinds/dataset.h"

namespace trainrun {

/// [N] int64: from each of N + 1 places to the next.
at::Tensor lengths_between(std::span<const int64_t> begins);

/// The lengths of all samples. Throws DataError where the data do not know them.
at::Tensor sample_lengths(const Dataset& data);

}  // namespace trainrun
