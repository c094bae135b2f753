#pragma once

#include <memory>

#include "registry/graph/operation.h"
#include "registry/graph/operation_facet.h"

namespace trainrun {

/// An operation that lays its first output in memory as Python's does, and copies for that: what draws a random number for
/// each element draws them in the order of memory.
class KeepsMemoryOrder : public OperationFacet {
 public:
  /// The same operation, which does not: for models in which nothing draws.
  virtual std::shared_ptr<const Operation> in_any_order() const = 0;
};

}  // namespace trainrun
