#pragma once

#include <memory>

#include "registry/kinds/transform.h"

namespace trainrun {

/// The transform in front of all others: makes float32 in [0, 1] of the pixels that a data set gives as bytes, and says
/// so in `info`. Null where no field holds bytes.
std::unique_ptr<Transform> pixels_to_floats(DatasetInfo& info);

/// Rounds numbers to float32 that transforms have left in float64, as the last of them: the model gets no other.
std::unique_ptr<Transform> float64_to_floats();

}  // namespace trainrun
