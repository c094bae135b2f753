#pragma once

#include <memory>

#include "registry/graph/operation.h"
#include "registry/graph/operation_facet.h"

namespace trainrun {

/// An operation that may give what it reads once more, for another that reads it too: the gradient that the other gives
/// then comes to this one, which adds its own to it as it computes that. Autograd would take another pass over both.
class CanPassOnInput : public OperationFacet {
 public:
  /// The same operation with its first input as one more output, its last, a view of it; null if it cannot.
  virtual std::shared_ptr<const Operation> passing_on() const = 0;
};

}  // namespace trainrun
