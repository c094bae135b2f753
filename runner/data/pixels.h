#pragma once

#include <memory>

#include "registry/transform.h"

namespace trainrun {

/// The transform in front of all others: makes float32 in [0, 1] of the pixels that a data set gives as bytes, and says
/// so in `info`. Null where no field holds bytes.
std::unique_ptr<Transform> pixels_to_floats(DatasetInfo& info);

}  // namespace trainrun
