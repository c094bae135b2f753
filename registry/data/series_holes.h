#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "registry/kinds/dataset.h"

namespace trainrun {

/// Where series of equal values of the column `group` have to be split because rows of theirs are left out: places in
/// `order` ([N] int64: the rows, series after series), each once, ascending. A row whose group cannot be read may be of
/// every series. `ends`: of each series in `order`.
std::vector<int64_t> splits_at_holes(const Dataset& rows, const std::string& group, const at::Tensor& order,
                                     const std::vector<int64_t>& ends);

}  // namespace trainrun
