#include "runner/foresight/optimizer_memory.h"

#include <ATen/ops/ones.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/zeros.h>

#include <map>

#include "registry/kinds/build.h"

namespace trainrun {
namespace {

struct StandIn {
  at::Tensor parameter;
  at::Tensor tiny;  // two elements a dimension
};

/// Puts a tiny parameter with a gradient in the place of each; one without elements has no gradient.
std::map<std::string, StandIn> make_tiny(OptimizerInputs& inputs) {
  constexpr int64_t kTiny = 2;
  std::map<std::string, StandIn> pairs;
  for (ParameterGroup& group : inputs.groups) {
    for (size_t i = 0; i < group.tensors.size(); ++i) {
      const at::Tensor parameter = group.tensors[i];
      const bool is_empty = parameter.numel() == 0;
      const std::vector<int64_t> sizes(static_cast<size_t>(parameter.dim()), is_empty ? 0 : kTiny);
      const auto options = at::TensorOptions().dtype(parameter.scalar_type());
      at::Tensor small = at::zeros(sizes, options);
      small.set_requires_grad(true);
      if (!is_empty) small.mutable_grad() = at::ones(sizes, options);
      group.tensors[i] = small;
      pairs[group.names[i]] = {parameter, small};
    }
  }
  return pairs;
}

}  // namespace

// State is often made by the first step, so one is done, on tiny parameters; state as large as these is as large as the
// parameter, other state stays as it is.
int64_t optimizer_state_bytes(const Component<OptimizerKind>& optimizer, const OptimizerInputs& inputs) {
  OptimizerInputs tiny = inputs;
  const std::map<std::string, StandIn> pairs = make_tiny(tiny);
  const auto made = build_at_place(optimizer, tiny);
  made->step({made->initial_rates(), [] { return at::scalar_tensor(0, at::kDouble); }});
  int64_t bytes = 0;
  for (const auto& [name, state] : made->state()) {
    const auto owner = pairs.find(name.substr(0, name.rfind('.')));
    const bool like_owner = owner != pairs.end() && state.dim() > 0 && state.sizes() == owner->second.tiny.sizes();
    const int64_t numel = like_owner ? owner->second.parameter.numel() : state.numel();
    bytes += numel * state.element_size();
  }
  return bytes;
}

}  // namespace trainrun
