#include <ATen/TensorOperators.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>

#include <set>

#include "registry/kinds/optimizer.h"
#include "registry/tensors/storage.h"

namespace trainrun {
namespace {

bool is_narrowed(const at::Tensor& tensor) { return tensor.scalar_type() == at::kFloat && tensor.dim() > 0; }

/// To bfloat16, up or down with the probability that makes the expectation right: a running mean that changes by less
/// than half a unit of the last digit would never change otherwise. The chance is drawn from value and `step`, so a
/// resumed run rounds alike.
at::Tensor rounded(const at::Tensor& values, int64_t step) {
  constexpr int64_t kMix = 0x9E3779B1;  // Knuth's multiplicative hash
  constexpr int64_t kLow = 0xFFFF;
  constexpr int64_t kWord = 0xFFFFFFFF;
  const at::Tensor bits = values.view(at::kInt).to(at::kLong).bitwise_and_(kWord);
  at::Tensor noise = (bits + step * kMix).bitwise_and_(kWord).mul_(kMix).bitwise_and_(kWord);
  noise = noise.bitwise_xor(noise.bitwise_right_shift(15)).mul_(kMix).bitwise_right_shift(16).bitwise_and_(kLow);
  const at::Tensor up = bits.add(noise).bitwise_and_(kWord ^ kLow).to(at::kInt).view(at::kFloat);
  return at::where(values.isfinite(), up, values).to(at::kBFloat16);
}

/// Keeps another optimizer's float32 state as bfloat16 between steps.
class LowPrecisionState : public Optimizer {
 public:
  LowPrecisionState(std::unique_ptr<Optimizer> inner, const std::string& first_parameter)
      : inner_(std::move(inner)),
        counter_name_(first_parameter + ".rounding_step"),
        counter_(at::zeros({}, at::kLong)) {
    for (const GroupRates& group : inner_->initial_rates()) add_group(group);
  }

  void step(const StepContext& context) override {
    const c10::AutoGradMode no_gradients(false);
    widen();
    {
      const c10::AutoGradMode with_gradients(true);  // for one that asks for the loss again
      inner_->step(context);
    }
    counter_.add_(1);
    narrow();
  }

  NamedTensors state() override {
    NamedTensors state;
    for (const auto& [name, tensor] : inner_->state()) {
      const auto it = narrow_.find(name);
      state.emplace_back(name, it == narrow_.end() ? tensor : it->second);
    }
    state.emplace_back(counter_name_, counter_);
    return state;
  }

  void load_state(const std::map<std::string, at::Tensor>& saved) override {
    const c10::AutoGradMode no_gradients(false);
    widen();
    std::map<std::string, at::Tensor> wide;
    for (const auto& [name, tensor] : saved) {
      if (name == counter_name_) {
        counter_.copy_(tensor);
      } else {
        wide.emplace(name, tensor.scalar_type() == at::kBFloat16 ? tensor.to(at::kFloat) : tensor);
      }
    }
    inner_->load_state(wide);
    narrow();
  }

  bool is_elementwise() const override { return inner_->is_elementwise(); }
  bool skips_overflow() const override { return inner_->skips_overflow(); }
  bool takes_factors() const override { return inner_->takes_factors(); }

  /// What has not changed was rounded to itself.
  void last_step_was_skipped() override {
    inner_->last_step_was_skipped();
    counter_.sub_(1);
    std::set<std::string> begun;
    for (const auto& [name, tensor] : inner_->state()) begun.insert(name);
    std::erase_if(narrow_, [&](const auto& item) { return !begun.contains(item.first); });
  }

 private:
  void narrow() {
    const int64_t step = counter_.item<int64_t>();
    for (const auto& [name, tensor] : inner_->state()) {
      if (!is_narrowed(tensor)) continue;
      narrow_[name] = rounded(tensor, step);
      give_memory_back(tensor);
    }
  }

  void widen() {
    for (const auto& [name, tensor] : inner_->state()) {
      const auto it = narrow_.find(name);
      if (it == narrow_.end()) continue;
      take_memory(tensor);
      tensor.copy_(it->second);
    }
    narrow_.clear();
  }

  std::unique_ptr<Optimizer> inner_;
  std::map<std::string, at::Tensor> narrow_;  // by name; the inner optimizer's own have no memory meanwhile
  std::string counter_name_;
  at::Tensor counter_;  // of steps
};

}  // namespace

std::unique_ptr<Optimizer> with_low_precision_state(std::unique_ptr<Optimizer> optimizer,
                                                    const OptimizerInputs& inputs) {
  if (inputs.groups.empty()) return optimizer;
  return std::make_unique<LowPrecisionState>(std::move(optimizer), inputs.groups[0].names[0]);
}

}  // namespace trainrun
