#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>

#include "registry/layer.h"

namespace trainrun {
namespace {

constexpr size_t kMany = 1 << 16;

struct Add {
  static void describe(Fields<Add>&) {}
  Layer build(const LayerInputs& in) const {
    in.require_inputs(2, kMany);
    return {nullptr, [](const Tensors& inputs) -> Tensors {
              at::Tensor sum = inputs[0] + inputs[1];
              for (size_t i = 2; i < inputs.size(); ++i) sum = sum + inputs[i];
              return {sum};
            }};
  }
};

struct Concat {
  int64_t dim = 1;
  static void describe(Fields<Concat>& f) {
    f.optional("dim", &Concat::dim).doc("the dimension that grows; 0 is the batch");
  }
  Layer build(const LayerInputs& in) const {
    in.require_inputs(2, kMany);
    return {nullptr, [dim = dim](const Tensors& inputs) -> Tensors { return {at::cat(inputs, dim)}; }};
  }
};

}  // namespace

void add_combinations(LayerRegistry& layers) {
  layers.add<Add>("Add", "the sum of its inputs, broadcast");
  layers.add<Concat>("Concat", "its inputs one after the other along a dimension");
}

}  // namespace trainrun
