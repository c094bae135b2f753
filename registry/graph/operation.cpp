#include "registry/graph/operation.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/clamp_min.h>

#include <utility>

#include "registry/graph/built_layer.h"

namespace trainrun {
namespace {

class FunctionOperation : public Operation {
 public:
  FunctionOperation(std::function<Tensors(const Tensors&)> function, const Traits& traits)
      : function_(std::move(function)), traits_(traits) {}
  Tensors run(const Tensors& inputs) const override { return function_(inputs); }
  Traits traits() const override { return traits_; }

 private:
  std::function<Tensors(const Tensors&)> function_;
  Traits traits_;
};

class FurtherOperation : public DecodingOperation {
 public:
  using Further = std::function<Tensors(const Tensors&, const DecodingPoint&, Tensors&)>;
  FurtherOperation(Layer::Function function, Further further, const Traits& traits)
      : function_(std::move(function)), further_(std::move(further)), traits_(traits) {}
  Tensors run(const Tensors& inputs) const override { return function_(inputs); }
  Tensors run_further(const Tensors& inputs, const DecodingPoint& point, Tensors& memory) const override {
    return further_(inputs, point, memory);
  }
  Traits traits() const override { return traits_; }

 private:
  Layer::Function function_;
  Further further_;
  Traits traits_;
};

}  // namespace

std::shared_ptr<const Operation> operation_of(std::function<Tensors(const Tensors&)> function,
                                              const Operation::Traits& traits) {
  return std::make_shared<FunctionOperation>(std::move(function), traits);
}

at::Tensor DecodingPoint::positions(int64_t length, at::Device device) const {
  const auto options = at::TensorOptions(at::kLong).device(device);
  const at::Tensor places = at::arange(past, past + length, options).unsqueeze(0);
  return padding.defined() ? at::clamp_min(places - padding.unsqueeze(1), 0) : places;
}

Layer decoding_layer(std::shared_ptr<torch::nn::Module> state, Layer::Function function,
                     std::function<Tensors(const Tensors&, const DecodingPoint&, Tensors&)> further,
                     const Operation::Traits& traits) {
  Layer layer;
  layer.state = std::move(state);
  layer.operation = std::make_shared<FurtherOperation>(std::move(function), std::move(further), traits);
  return layer;
}

}  // namespace trainrun
