#pragma once

#include <ATen/ATen.h>

#include <string>

#include "registry/language/error.h"
#include "registry/tensors/files/tensor_file.h"

namespace trainrun::test {

/// Its elements, in their order.
inline std::string bytes_of(const at::Tensor& tensor) {
  const at::Tensor data = tensor.contiguous();
  return {static_cast<const char*>(data.const_data_ptr()), data.nbytes()};
}

inline const at::Tensor& tensor_in(const NamedTensors& tensors, const std::string& name) {
  for (const auto& [found, tensor] : tensors) {
    if (found == name) return tensor;
  }
  throw Error("no tensor " + name);
}

}  // namespace trainrun::test
