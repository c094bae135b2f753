#pragma once

#include <memory>

namespace trainrun {

/// While one lives, on this thread, within a ShapeMode: operations do what they do without it, for code that reads
/// tensors from a file and asks for the meta device by itself.
class OutsideShapeMode {
 public:
  OutsideShapeMode();
  ~OutsideShapeMode();
  OutsideShapeMode(const OutsideShapeMode&) = delete;
  OutsideShapeMode& operator=(const OutsideShapeMode&) = delete;

 private:
  struct Guard;
  std::unique_ptr<Guard> guard_;
};

}  // namespace trainrun
