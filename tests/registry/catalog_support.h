#pragma once

#include <string>

#include "tests/registry/support.h"

namespace trainrun::test {

/// A built-in component with these parameters, "a: 1, b: 2".
template <class Kind>
Component<Kind> component(const std::string& name, const std::string& parameters) {
  return read<Component<Kind>>("{type: " + name + (parameters.empty() ? "" : ", " + parameters) + "}", catalog());
}

/// What a loss or metric gets of these tensors.
inline LayerInputs inputs_of(const Tensors& tensors) {
  LayerInputs inputs;
  inputs.examples = tensors;
  return inputs;
}

}  // namespace trainrun::test
