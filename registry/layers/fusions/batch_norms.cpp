#include <memory>
#include <optional>

#include "registry/graph/fusion.h"
#include "registry/graph/graph.h"
#include "registry/kernels/batch_norm.h"
#include "registry/kernels/max_pool.h"
#include "registry/layers/batch_norm.h"
#include "registry/layers/fusions/relu_max_pool.h"

// A batch normalization, alone; or with what is added to it at the end of a residual block and the ReLU after both; or
// with a ReLU and a pooling.

namespace trainrun {
namespace {

/// Null for a layer that cannot.
NormByRows* rows_of(const Layer& layer) { return dynamic_cast<NormByRows*>(layer.state.get()); }

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
    return {rows_of(layer_)->then_relu(inputs[0], inputs.size() > 1 ? inputs[1] : at::Tensor())};
  }
  Traits traits() const override { return layer_.operation->traits(); }

 private:
  /// What reads the added first: their sum lies in memory as that does.
  struct Turned {
    Layer sum, relu;
  };

  Layer layer_;
  std::optional<Turned> turned_;
};

/// The ReLU is computed with what costs less where x lies as it does: the norm, or the pooling.
class BatchNormReluMaxPool : public Operation {
 public:
  BatchNormReluMaxPool(const FusedLayers& layers, const kernels::MaxPoolWindow& window)
      : norm_(layers["norm"].layer), pool_(layers["pool"].layer), window_(window) {}

  Tensors run(const Tensors& inputs) const override {
    const at::Tensor& x = inputs[0];
    if (!kernels::is_of_rows(x) || kernels::supports_relu_max_pool2d(x, window_)) {
      return {kernels::relu_max_pool2d(norm_.forward({x})[0], window_)};
    }
    return pool_.forward({rows_of(norm_)->then_relu(x, {})});
  }
  Traits traits() const override { return norm_.operation->traits(); }

 private:
  Layer norm_, pool_;
  kernels::MaxPoolWindow window_;
};

std::shared_ptr<const Operation> fuse_batch_norm_max_pool(const FusedLayers& layers) {
  const auto window = window_after_relu(layers);
  const bool can = window && rows_of(layers["norm"].layer) != nullptr;
  return can ? std::make_shared<BatchNormReluMaxPool>(layers, *window) : nullptr;
}

std::shared_ptr<const Operation> fuse_batch_norm(const FusedLayers& layers, bool has_sum) {
  const bool can = rows_of(layers["norm"].layer) != nullptr;
  return can ? std::make_shared<BatchNormRelu>(layers, has_sum) : nullptr;
}

std::shared_ptr<const Operation> fuse_batch_norm_sum(const FusedLayers& layers) {
  const GraphNode& sum = layers["sum"];
  const bool is_of_alike = sum.input_shapes.size() == 2 && sum.input_shapes[0] == sum.input_shapes[1];
  return is_of_alike ? fuse_batch_norm(layers, true) : nullptr;
}

class PlainBatchNorm : public Operation {
 public:
  explicit PlainBatchNorm(const Layer& layer) : layer_(layer) {}

  Tensors run(const Tensors& inputs) const override { return {rows_of(layer_)->by_rows(inputs[0])}; }
  Traits traits() const override { return layer_.operation->traits(); }

 private:
  Layer layer_;
};

}  // namespace

void add_batch_norm(FusionRegistry& fusions) {
  fusions.add({"BatchNorm",
               "a BatchNorm by itself in two passes over the batch, where channels are last: equal but for rounding",
               {.nodes = {{"norm", {"BatchNorm1d", "BatchNorm2d"}}}},
               [](const FusedLayers& layers) -> std::shared_ptr<const Operation> {
                 const Layer& norm = layers["norm"].layer;
                 return rows_of(norm) ? std::make_shared<PlainBatchNorm>(norm) : nullptr;
               }});
}

void add_batch_norm_relu(FusionRegistry& fusions) {
  const FusionPattern::Node norm{"norm", {"BatchNorm1d", "BatchNorm2d"}};
  fusions.add({"BatchNormReLUMaxPool2d",
               "a BatchNorm, a ReLU and a MaxPool2d; the ReLU with whichever of the two takes less time so",
               {.nodes = {{"norm", {"BatchNorm2d"}}, {"relu", {"ReLU"}, {"norm"}}, {"pool", {"MaxPool2d"}, {"relu"}}}},
               fuse_batch_norm_max_pool});
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
