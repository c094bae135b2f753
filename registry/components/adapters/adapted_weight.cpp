#include "registry/components/adapters/adapted_weight.h"

#include <ATen/core/Tensor.h>

#include "registry/kinds/layer_shapes.h"

namespace trainrun {

AdaptedWeight::AdaptedWeight(const AdapterInputs& in, const std::string& adapter, bool allows_embedding)
    : weight(in.parameter("weight")), bias(in.parameter("bias")) {
  is_transposed = in.type == "TransposedLinear";
  is_embedding = in.type == "Embedding";
  const bool fits = in.type == "Linear" || is_transposed || (is_embedding && allows_embedding);
  if (!fits || !weight.defined() || weight.dim() != 2) {
    throw LayerError(adapter + " adapts Linear and TransposedLinear" + (allows_embedding ? ", and Embedding" : "") +
                     ", but " + in.name + " is of type " + in.type);
  }
  const bool in_first = is_transposed || is_embedding;
  in_features = weight.size(in_first ? 0 : 1);
  out_features = weight.size(in_first ? 1 : 0);
}

at::Tensor AdaptedWeight::as_own(const at::Tensor& matrix) const {
  return is_transposed || is_embedding ? matrix.t().contiguous() : matrix;
}

at::Tensor saved_tensor(const AdapterInputs& in, const std::string& name) {
  for (const auto& [own, tensor] : in.saved) {
    if (own == name) return tensor;
  }
  return {};
}

}  // namespace trainrun
