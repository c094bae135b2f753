#pragma once

#include "registry/language/error.h"

namespace trainrun {

/// A rank is lost, or communication with it failed.
class DistributedError : public Error {
 public:
  using Error::Error;
};

}  // namespace trainrun
