#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <vector>

#include "registry/graph/function_operation.h"
#include "registry/graph/operation.h"
#include "registry/graph/operation_facet.h"

// What operations over [N, T, …] say for the pass that leaves out positions which nothing reads (needed_positions.h).

namespace trainrun {

/// An operation that mixes positions and says which of them it reads.
class ReadsPositions : public OperationFacet {
 public:
  enum class Read {
    kAll,
    kFirst,     // the first of T
    kMasked,    // those for which the mask is not 0; of a text for which all of it is 0, all
    kAsOutput,  // those of which the outputs are read
  };
  struct Reads {
    std::vector<Read> inputs;                   // of each input
    std::optional<size_t> mask = std::nullopt;  // the input that is the mask, [N, T] of integers
  };
  virtual Reads reads(size_t num_inputs) const = 0;
};

/// An operation that can compute some of the positions if it knows which they are: one that is position-wise but draws
/// random numbers, or one with a mask (`ReadsPositions`) that mixes those which the mask marks.
class ComputesSomePositions : public OperationFacet {
 public:
  /// The same operation, for some of all positions [N, T], side by side. It draws as for all of them, in this order, and
  /// reads two more inputs, its last: a tensor [N, T, …] for the sizes, and [K] int64, the numbers of the positions.
  virtual std::shared_ptr<const Operation> at_positions() const = 0;
};

/// Marks an operation whose first output lies in memory in the order of its dimensions, without gaps, whatever the order
/// of its inputs.
class LaysOutInOrder : public OperationFacet {};

/// An operation that calls a function whose output lies in memory like that.
class InOrderOperation : public FunctionOperation, public LaysOutInOrder {
 public:
  using FunctionOperation::FunctionOperation;
};

}  // namespace trainrun
