#include "registry/kinds/layer_shapes.h"

namespace trainrun {

std::string shape_text(c10::ArrayRef<int64_t> shape) {
  std::vector<std::string> sizes;
  for (size_t i = 0; i < shape.size(); ++i) {
    sizes.push_back(i == 0 && shape[0] == kExampleBatch ? "N" : std::to_string(shape[i]));
  }
  return "[" + join(sizes) + "]";
}

}  // namespace trainrun
