#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <memory>
#include <string>

namespace trainrun {

/// Gives LibTorch the kernel that ShapeMode switches on, once for the process. Without it a ShapeMode throws Error.
void install_shape_mode();

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
  /// Bytes of the tensors that operations were computed with on zeros, because they have neither a meta kernel nor a
  /// shape function, by operation ("aten::where.self"); on this thread, since it began.
  static const std::map<std::string, int64_t>& computed();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace trainrun
