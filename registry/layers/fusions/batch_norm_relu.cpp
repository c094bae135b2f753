#include <optional>

#include "registry/graph/fusion.h"
#include "registry/graph/graph.h"
#include "registry/kernels/batch_norm.h"
#include "registry/layers/batch_norm.h"

// A batch normalization, what is added to it at the end of a residual block, and the ReLU after both.

namespace trainrun {
namespace {

class BatchNormRelu : public Operation {
 public:
  explicit BatchNormRelu(const FusedLayers& layers, bool has_sum) : layer_(layers["norm"].layer) {
    if (has_sum && layers.is_turned("sum")) turned_ = Turned{layers["sum"].layer, layers["relu"].layer};
  }

  /// Reads what is normalized, and what is added to it, if anything is.
  Tensors run(const Tensors& inputs) const override {
    if (turned_ && !(kernels::is_of_rows(inputs[0]) && kernels::is_of_rows(inputs[1]))) {
      return turned_->relu.forward(turned_->sum.forward({inputs[1], layer_.forward({inputs[0]})[0]}));
    }
    return {of(layer_)->then_relu(inputs[0], inputs.size() > 1 ? inputs[1] : at::Tensor())};
  }
  Traits traits() const override { return layer_.operation->traits(); }
  /// Null for a layer that cannot.
  static NormThenRelu* of(const Layer& layer) { return dynamic_cast<NormThenRelu*>(layer.state.get()); }

 private:
  /// What reads the added first: their sum lies in memory as that does.
  struct Turned {
    Layer sum, relu;
  };

  Layer layer_;
  std::optional<Turned> turned_;
};

std::shared_ptr<const Operation> fuse_batch_norm(const FusedLayers& layers, bool has_sum) {
  const bool can = BatchNormRelu::of(layers["norm"].layer) != nullptr;
  return can ? std::make_shared<BatchNormRelu>(layers, has_sum) : nullptr;
}

std::shared_ptr<const Operation> fuse_batch_norm_sum(const FusedLayers& layers) {
  const GraphNode& sum = layers["sum"];
  const bool is_of_alike = sum.input_shapes.size() == 2 && sum.input_shapes[0] == sum.input_shapes[1];
  return is_of_alike ? fuse_batch_norm(layers, true) : nullptr;
}

}  // namespace

void add_batch_norm_relu(FusionRegistry& fusions) {
  const FusionPattern::Node norm{"norm", {"BatchNorm1d", "BatchNorm2d"}};
  fusions.add({"BatchNormReLU",
               "a BatchNorm and the ReLU after it in two passes over the batch",
               {.nodes = {norm, {"relu", {"ReLU"}, {"norm"}}}},
               [](const FusedLayers& layers) { return fuse_batch_norm(layers, false); }});
  fusions.add({"BatchNormAddReLU",
               "a BatchNorm, what a residual block adds to it, and the ReLU after both, in two passes",
               {.nodes = {norm, {"sum", {"Add"}, {"norm", "added"}, true}, {"relu", {"ReLU"}, {"sum"}}}},
               fuse_batch_norm_sum});
}

}  // namespace trainrun
