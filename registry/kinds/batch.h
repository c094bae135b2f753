#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <string>
#include <vector>

namespace trainrun {

/// The named tensors of one batch, whose first dimension is the samples: {"image": [N, 1, 28, 28], "label": [N]}.
class Batch {
 public:
  struct Field {
    std::string name;
    at::Tensor tensor;
  };

  /// The field's tensor. Throws Error, which names the existing fields, if there is none.
  at::Tensor& at(const std::string& name);
  const at::Tensor& at(const std::string& name) const;
  void set(const std::string& name, at::Tensor tensor);
  const std::vector<Field>& fields() const { return fields_; }
  /// N; 0 for a batch without fields.
  int64_t size() const;

 private:
  std::vector<Field> fields_;
};

/// A size that differs from sample to sample, such as those of photographs before they are cut to one size.
inline constexpr int64_t kAnySize = -1;

/// What one sample of a field of a data set looks like. Bytes (uint8) are the pixels of images, of which the first
/// transform, or the model, gets float32 in [0, 1].
struct FieldInfo {
  std::string name;
  std::vector<int64_t> shape;  // without the batch: [1, 28, 28]; [] for a number; kAnySize where samples differ
  at::ScalarType dtype = at::kFloat;
  std::optional<int64_t> num_classes;  // number of classes of a label
};

/// What is known about a data set before its files are opened.
struct DatasetInfo {
  std::vector<FieldInfo> fields;       // the first is what the first layer reads
  std::string target;                  // the field that the loss compares with
  std::optional<int64_t> num_samples;  // if it is fixed or known
  const FieldInfo* find(const std::string& name) const;
};

}  // namespace trainrun
