#include "registry/graph/operation.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/clamp_min.h>

#include <utility>

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

}  // namespace trainrun
