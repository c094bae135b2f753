#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <string>

#include "registry/components/transforms/fields.h"

namespace trainrun {

/// Classes of `field`: as given, or as the data set says.
std::optional<int64_t> classes_of(const DatasetInfo& info, const std::string& field, std::optional<int64_t> given);
/// Changes what is known of labels that become one-hot. Throws LayerError if they are not classes, or their number is
/// not known.
void describe_one_hot(FieldInfo& labels, std::optional<int64_t> num_classes, const std::string& transform);
/// [N, …] classes as [N, …, num_classes] float32. Throws DataError, which names `field`, for a class out of range.
at::Tensor one_hot(const at::Tensor& labels, int64_t num_classes, const std::string& field);

}  // namespace trainrun
