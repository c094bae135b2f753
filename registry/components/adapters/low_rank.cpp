#include "registry/components/adapters/low_rank.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/add.h>
#include <ATen/ops/dropout.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/matmul.h>
#include <c10/core/DispatchKeySet.h>
#include <c10/core/GradMode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/nn/module.h>

#include "registry/graph/positions.h"

namespace trainrun {
namespace {

at::Tensor low_rank_product(const at::Tensor& x, const LowRankFactors& factors) {
  return at::linear(at::linear(x, factors.a), factors.b);
}

class LoraLinear : public Operation, public LaysOutInOrder {
 public:
  LoraLinear(const AdapterInputs& in, LowRankFactors factors)
      : state_(in.state), base_(in.operation), factors_(std::move(factors)) {}
  Tensors run(const Tensors& inputs) const override {
    Tensors outputs = base_->run(inputs);
    const bool drops = factors_.dropout > 0 && state_->is_training();
    const at::Tensor x = drops ? at::dropout(inputs[0], factors_.dropout, true) : inputs[0];
    outputs[0] = at::add(outputs[0], low_rank_product(x, factors_), factors_.scale);
    return outputs;
  }
  Traits traits() const override { return traits_with_adapter(*base_, factors_.dropout > 0); }

 private:
  std::shared_ptr<torch::nn::Module> state_;
  std::shared_ptr<const Operation> base_;
  LowRankFactors factors_;
};

/// Of a layer that looks up rows.
class LoraRows : public Operation {
 public:
  LoraRows(const AdapterInputs& in, int64_t padding, LowRankFactors factors)
      : base_(in.operation), factors_(std::move(factors)), padding_(padding) {}
  Tensors run(const Tensors& inputs) const override {
    Tensors outputs = base_->run(inputs);
    const at::Tensor rows = at::embedding(factors_.a.t(), inputs[0], padding_);
    outputs[0] = at::add(outputs[0], at::matmul(rows, factors_.b.t()), factors_.scale);
    return outputs;
  }
  Traits traits() const override { return traits_with_adapter(*base_, false); }

 private:
  std::shared_ptr<const Operation> base_;
  LowRankFactors factors_;
  int64_t padding_;
};

class DoraLinear : public Operation, public LaysOutInOrder {
 public:
  DoraLinear(const AdapterInputs& in, AdaptedWeight layer, LowRankFactors factors, at::Tensor magnitude)
      : state_(in.state),
        base_(in.operation),
        layer_(std::move(layer)),
        factors_(std::move(factors)),
        magnitude_(std::move(magnitude)) {}
  Tensors run(const Tensors& inputs) const override {
    const at::Tensor growth = magnitude_ / row_norms(layer_, factors_);  // [out]
    const bool drops = factors_.dropout > 0 && state_->is_training();
    return {drops ? with_dropout(inputs, growth) : without_dropout(inputs[0], growth)};
  }
  Traits traits() const override { return traits_with_adapter(*base_, factors_.dropout > 0); }

 private:
  at::Tensor without_dropout(const at::Tensor& x, const at::Tensor& growth) const {
    const at::Tensor unbiased = at::linear(x, layer_.as_linear());
    at::Tensor result = at::add(unbiased, low_rank_product(x, factors_), factors_.scale) * growth;
    if (layer_.bias.defined()) result = result + layer_.bias;
    return result.to(unbiased.scalar_type());
  }
  at::Tensor with_dropout(const Tensors& inputs, const at::Tensor& growth) const {
    const at::Tensor base = base_->run(inputs)[0];
    const at::Tensor x = at::dropout(inputs[0], factors_.dropout, true);
    const at::Tensor own = at::linear(x, layer_.as_linear()) * (growth - 1);
    const at::Tensor change = low_rank_product(x, factors_) * growth * factors_.scale;
    return (base + own + change).to(base.scalar_type());
  }

  std::shared_ptr<torch::nn::Module> state_;
  std::shared_ptr<const Operation> base_;
  AdaptedWeight layer_;
  LowRankFactors factors_;
  at::Tensor magnitude_;
};

}  // namespace

at::Tensor LowRankFactors::product() const {
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
  return at::matmul(b, a);
}

at::Tensor row_norms(const AdaptedWeight& layer, const LowRankFactors& factors) {
  const c10::AutoGradMode no_gradients(false);
  const at::Tensor sum = at::add(layer.as_linear(), factors.product(), factors.scale);
  return at::linalg_vector_norm(sum, 2, at::IntArrayRef{1});
}

std::shared_ptr<const Operation> lora_linear(const AdapterInputs& in, LowRankFactors factors) {
  return std::make_shared<LoraLinear>(in, std::move(factors));
}

std::shared_ptr<const Operation> lora_rows(const AdapterInputs& in, const AdaptedWeight& layer,
                                           LowRankFactors factors) {
  return std::make_shared<LoraRows>(in, layer.padding, std::move(factors));
}

std::shared_ptr<const Operation> dora_linear(const AdapterInputs& in, AdaptedWeight layer, LowRankFactors factors,
                                             at::Tensor magnitude) {
  return std::make_shared<DoraLinear>(in, std::move(layer), std::move(factors), std::move(magnitude));
}

}  // namespace trainrun
