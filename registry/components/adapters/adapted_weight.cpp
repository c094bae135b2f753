#include "registry/components/adapters/adapted_weight.h"

#include <ATen/core/Tensor.h>

#include "registry/kinds/layer_shapes.h"

namespace trainrun {

AdaptedWeight::AdaptedWeight(const AdapterInputs& in, const std::string& adapter, bool allows_rows) {
  using Form = AdaptableWeight::Form;
  if (in.adaptable && (allows_rows || in.adaptable->form != Form::kRows)) {
    weight_name = in.adaptable->weight;
    bias_name = in.adaptable->bias;
    weight = in.parameter(weight_name);
    bias = in.parameter(bias_name);
    padding = in.adaptable->padding;
    is_transposed = in.adaptable->form == Form::kInOut;
    is_rows = in.adaptable->form == Form::kRows;
  }
  if (!weight.defined() || weight.dim() != 2) {
    throw LayerError(adapter + " adapts Linear and TransposedLinear" +
                     (allows_rows ? ", and Embedding without max_norm" : "") + ", but " + in.name + " is of type " +
                     in.type);
  }
  const bool in_first = is_transposed || is_rows;
  in_features = weight.size(in_first ? 0 : 1);
  out_features = weight.size(in_first ? 1 : 0);
}

at::Tensor AdaptedWeight::as_own(const at::Tensor& matrix) const {
  return is_transposed || is_rows ? matrix.t().contiguous() : matrix;
}

Operation::Traits traits_with_adapter(const Operation& base, bool is_random) {
  Operation::Traits traits = base.traits();
  traits.pointwise = false;
  traits.random |= is_random;
  return traits;
}

at::Tensor saved_tensor(const AdapterInputs& in, const std::string& name) {
  for (const auto& [own, tensor] : in.saved) {
    if (own == name) return tensor;
  }
  return {};
}

}  // namespace trainrun
