#pragma once

#include <functional>
#include <utility>

#include "registry/graph/operation.h"

namespace trainrun {

/// An operation that calls `function`.
class FunctionOperation : public Operation {
 public:
  FunctionOperation(std::function<Tensors(const Tensors&)> function, const Traits& traits)
      : function_(std::move(function)), traits_(traits) {}
  Tensors run(const Tensors& inputs) const override { return function_(inputs); }
  Traits traits() const override { return traits_; }

 private:
  std::function<Tensors(const Tensors&)> function_;
  Traits traits_;
};

}  // namespace trainrun
