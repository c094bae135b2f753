#pragma once

#include "registry/language/error.h"

namespace trainrun {

/// Training cannot go on: a loss that is not a number, a layer that fails.
class TrainingError : public Error {
 public:
  using Error::Error;
};

}  // namespace trainrun
