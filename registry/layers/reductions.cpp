#include <ATen/ops/max.h>
#include <ATen/ops/mean.h>

#include "registry/layer.h"

namespace trainrun {
namespace {

struct Mean {
  std::variant<int64_t, std::vector<int64_t>> dim;
  bool keepdim = false;
  static void describe(Fields<Mean>& f) {
    f.required("dim", &Mean::dim).doc("the dimension that goes, or a list of them; 0 is the batch");
    f.optional("keepdim", &Mean::keepdim).doc("they stay, with size 1");
  }
  void check(Checker& checker) const {
    const auto* list = std::get_if<std::vector<int64_t>>(&dim);
    if (list && list->empty()) checker.fail("dim", "needs at least one dimension");
  }
  Layer build(const LayerInputs&) const {
    const auto* one = std::get_if<int64_t>(&dim);
    const std::vector<int64_t> dims = one ? std::vector<int64_t>{*one} : std::get<1>(dim);
    return layer_of_function([dims, keepdim = keepdim](const at::Tensor& x) { return at::mean(x, dims, keepdim); });
  }
};

struct Max {
  int64_t dim = 0;
  bool keepdim = false;
  static void describe(Fields<Max>& f) {
    f.required("dim", &Max::dim).doc("the dimension that goes; 0 is the batch");
    f.optional("keepdim", &Max::keepdim).doc("it stays, with size 1");
  }
  Layer build(const LayerInputs&) const {
    return {nullptr, [*this](const Tensors& inputs) -> Tensors {
              auto [values, indices] = at::max(inputs[0], dim, keepdim);
              return {values, indices};
            }};
  }
};

}  // namespace

void add_reductions(LayerRegistry& layers) {
  layers.add<Mean>("Mean", "the mean along dimensions");
  layers.add<Max>("Max", "the largest along a dimension; outputs: the values, their indices in it");
}

}  // namespace trainrun
