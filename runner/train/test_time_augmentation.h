#pragma once

#include <memory>
#include <string>
#include <vector>

#include "registry/kinds/callback.h"

namespace trainrun {

/// `evaluation.tta`: a prediction is the mean over several views of the images.
///   flip        each image, and the same mirrored left to right
///   five_crop   each image enlarged by reflecting an eighth of it at every side, and cut to its size again in the four
///               corners and in the middle, which is the image itself
/// Both together give ten views. Outputs with a place for each pixel of the input are mirrored back.
std::unique_ptr<Callback> test_time_augmentation(const std::vector<std::string>& views);

}  // namespace trainrun
