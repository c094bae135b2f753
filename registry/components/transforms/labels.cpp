#include "registry/components/transforms/labels.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/one_hot.h>

#include "registry/kinds/layer.h"

namespace trainrun {

std::optional<int64_t> classes_of(const DatasetInfo& info, const std::string& field, std::optional<int64_t> given) {
  const FieldInfo* found = info.find(field);
  return given || !found ? given : found->num_classes;
}

void describe_one_hot(FieldInfo& labels, std::optional<int64_t> num_classes, const std::string& transform) {
  if (labels.dtype != at::kLong) {
    throw LayerError(transform + ": '" + labels.name + "' holds " + at::toString(labels.dtype) +
                     ", expected classes (int64)");
  }
  if (!num_classes) {
    throw LayerError(transform + ": the data set does not say how many classes '" + labels.name +
                     "' has; write num_classes");
  }
  labels.shape.push_back(*num_classes);
  labels.dtype = at::kFloat;
  labels.num_classes = num_classes;
}

at::Tensor one_hot(const at::Tensor& labels, int64_t num_classes, const std::string& field) {
  if (labels.numel() > 0) {
    const auto least = labels.min().item<int64_t>();
    const auto most = labels.max().item<int64_t>();
    if (least < 0 || most >= num_classes) {
      throw DataError("class " + std::to_string(least < 0 ? least : most) + " of '" + field + "' is not from 0 to " +
                      std::to_string(num_classes - 1));
    }
  }
  return at::one_hot(labels, num_classes).to(at::kFloat);
}

}  // namespace trainrun
