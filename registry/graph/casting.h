#pragma once

#include <memory>

#include "registry/graph/function_operation.h"
#include "registry/graph/operation_facet.h"

namespace trainrun {

/// Marks an operation that under autocast begins by casting what it reads: it gives the same for inputs that are cast
/// already. What changes such an operation, as adapters do, is none itself unless it says so.
class CastsInputs : public OperationFacet {};

/// An operation that under autocast can give its first output as operations read it that cast their inputs.
class CanCastOutput : public OperationFacet {
 public:
  /// The same operation, which does so: in the place of that output if `only` such operations read it, else as one more
  /// output, its last.
  virtual std::shared_ptr<const Operation> with_cast_output(bool only) const = 0;
};

/// An operation that calls a function, which casts its inputs.
class CastingOperation : public FunctionOperation, public CastsInputs {
 public:
  using FunctionOperation::FunctionOperation;
};

}  // namespace trainrun
