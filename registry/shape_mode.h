#pragma once

#include <ATen/core/Tensor.h>

#include <memory>

namespace trainrun {

/// While one lives, on this thread: tensors are made on the meta device (no memory), operations give shapes and dtypes
/// but compute nothing, and modules are built without weights. The random generator is left as it was. Nests.
class ShapeMode {
 public:
  ShapeMode();
  ~ShapeMode();
  ShapeMode(const ShapeMode&) = delete;
  ShapeMode& operator=(const ShapeMode&) = delete;

  static bool active();
  /// Floating-point operations (multiplications and additions) of the matrix products and convolutions seen on this
  /// thread while a ShapeMode lived, since the thread began.
  static int64_t flops();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace trainrun
