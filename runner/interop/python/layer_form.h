#pragma once

#include <optional>
#include <string>

#include "runner/interop/python/expression.h"

namespace trainrun::python {

/// How a layer is written in PyTorch.
struct LayerForm {
  std::optional<Expression> module;  // what `__init__` makes; none: the layer keeps nothing
  /// What `forward` computes: {module}, {0} and so on for inputs, {all} for all of them.
  std::string call = "{module}({0})";
  std::string first{};    // takes the first of several outputs: "[0]"
  std::string targets{};  // what several outputs are given to: "{0}, ({1}, {2})"; "": one after the other
};

}  // namespace trainrun::python
