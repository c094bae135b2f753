#pragma once

#include <vector>

#include "registry/kinds/batch.h"
#include "runner/loggers/tensor_records.h"

namespace trainrun {

/// The first `most` samples of each field of pictures, [N, C, H, W], as "FIELD/0", "FIELD/1", …; none where the batch has
/// no such field.
std::vector<LoggedPicture> batch_pictures(const Batch& batch, int64_t most);

}  // namespace trainrun
