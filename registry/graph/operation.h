#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <vector>

namespace trainrun {

using Tensors = std::vector<at::Tensor>;

/// What a layer computes from its inputs; a Plan runs it as one step.
class Operation {
 public:
  /// What code that rearranges steps must know. A trait is true if it holds for some inputs, or only while training.
  struct Traits {
    bool in_place = false;     // it changes its inputs
    bool view = false;         // its outputs share memory with its inputs, or with tensors that it keeps
    bool random = false;       // it draws random numbers
    bool spans_ranks = false;  // it communicates: ranks wait for each other
  };

  virtual ~Operation() = default;
  /// Returns one or more outputs, of which the next layer reads the first.
  virtual Tensors run(const Tensors& inputs) const = 0;
  virtual Traits traits() const { return {}; }
};

/// An operation that calls `function`.
std::shared_ptr<const Operation> operation_of(std::function<Tensors(const Tensors&)> function,
                                              const Operation::Traits& traits = {});

}  // namespace trainrun
