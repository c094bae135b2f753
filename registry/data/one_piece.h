#pragma once

#include <memory>
#include <vector>

#include "registry/kinds/unlabelled_data.h"

namespace trainrun {

/// Data whose samples lie each at any place, as one piece, from sample `begin` on. `data` is open; `beside` is of all its
/// samples.
std::unique_ptr<UnlabelledData> one_piece(std::unique_ptr<Dataset> data, std::vector<ValueColumn> beside,
                                          int64_t begin);

}  // namespace trainrun
