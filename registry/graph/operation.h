#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <vector>

namespace trainrun {

using Tensors = std::vector<at::Tensor>;

/// What a layer does with its inputs: a step of a Plan.
class Operation {
 public:
  /// What those who rearrange steps must know. Each says what may happen, with some inputs or while training.
  struct Traits {
    bool in_place = false;     // it changes what it reads
    bool view = false;         // what it gives is memory that others have, of what it reads or keeps
    bool random = false;       // it draws random numbers
    bool spans_ranks = false;  // ranks wait for each other in it
  };

  virtual ~Operation() = default;
  /// One or more outputs; who reads the layer reads the first.
  virtual Tensors run(const Tensors& inputs) const = 0;
  virtual Traits traits() const { return {}; }
};

/// An operation that calls `function`.
std::shared_ptr<const Operation> operation_of(std::function<Tensors(const Tensors&)> function,
                                              const Operation::Traits& traits = {});

}  // namespace trainrun
