#pragma once

#include <memory>
#include <string>
#include <vector>

#include "registry/tensors/files/safetensors.h"

namespace trainrun {

/// A file of tensors whose beginning has been read: .safetensors, .npy (one tensor, called "") or .npz, told apart by
/// their content.
class TensorFile {
 public:
  struct Entry {
    std::string name;
    at::ScalarType dtype;
    std::vector<int64_t> shape;
  };

  virtual ~TensorFile() = default;
  virtual const std::vector<Entry>& entries() const = 0;
  /// Tensor number `index`, in memory of its own. Throws DataError naming the file.
  virtual at::Tensor read(size_t index) = 0;
};

/// Throws DataError naming the file: of another kind, damaged, Python objects in it.
std::unique_ptr<TensorFile> open_tensor_file(const std::string& path);

}  // namespace trainrun
