#pragma once

#include <memory>

#include "registry/kinds/transform.h"

namespace trainrun {

/// A transform that can say what becomes of an image's mask, whose pixels are numbers of classes.
class ChangesMasks {
 public:
  virtual ~ChangesMasks() = default;
  /// For a mask in place of the image: moves its pixels as those of the image, by the same draws, each taken from the
  /// nearest one; what comes in from outside is `fill`. Null: masks stay as they are.
  virtual std::shared_ptr<const Transform> for_masks(double fill) const = 0;
};

}  // namespace trainrun
