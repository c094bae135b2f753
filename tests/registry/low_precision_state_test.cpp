#include <torch/nn/module.h>
#include <torch/types.h>

#include "tests/registry/support.h"

using namespace trainrun;  // NOLINT(google-build-using-namespace)

namespace {

struct TrainedParameter {
  at::Tensor parameter;
  std::unique_ptr<Optimizer> optimizer;

  explicit TrainedParameter(const std::string& yaml) : parameter(torch::ones({400}).requires_grad_()) {
    const auto spec = test::read<Component<OptimizerKind>>(yaml, test::catalog());
    optimizer = spec.build(group_parameters(spec, {{"w", parameter}}));
  }
  void step(const at::Tensor& gradient) {
    parameter.mutable_grad() = gradient.clone();
    optimizer->step({optimizer->initial_rates()});
  }
  at::Tensor state(const std::string& name) {
    for (const auto& [known, tensor] : optimizer->state()) {
      if (known == name) return tensor;
    }
    throw Error("no " + name);
  }
};

}  // namespace

TEST_CASE("state_dtype bf16 keeps running means as bfloat16, and they still follow small changes") {
  TrainedParameter narrow("{type: AdamW, lr: 0.001, state_dtype: bf16}");
  TrainedParameter wide("{type: AdamW, lr: 0.001}");
  const at::Tensor first = torch::full({400}, 4.0);
  const at::Tensor later = torch::full({400}, 0.5);
  for (int step = 0; step < 1500; ++step) {
    narrow.step(step < 100 ? first : later);
    wide.step(step < 100 ? first : later);
  }
  // The mean of squares shrinks by 0.1 % a step, less than bfloat16's last digit: rounded to the nearest it would stay.
  const at::Tensor narrow_squares = narrow.state("w.exp_avg_sq");
  CHECK((narrow_squares.scalar_type() == at::kBFloat16));
  const double expected = wide.state("w.exp_avg_sq").mean().item<double>();
  CHECK(narrow_squares.to(at::kFloat).mean().item<double>() == doctest::Approx(expected).epsilon(0.02));
  CHECK(narrow.parameter.mean().item<double>() == doctest::Approx(wide.parameter.mean().item<double>()).epsilon(0.02));
  CHECK((narrow.state("w.step").scalar_type() == at::kFloat));
}

TEST_CASE("state_dtype bf16 goes on from its checkpoint exactly") {
  for (const std::string yaml :
       {"{type: AdamW, state_dtype: bf16}", "{type: SGD, lr: 0.1, momentum: 0.9, state_dtype: bf16}",
        "{type: RMSprop, state_dtype: bf16}"}) {
    CAPTURE(yaml);
    torch::manual_seed(1);
    TrainedParameter whole(yaml);
    TrainedParameter part(yaml);
    std::vector<at::Tensor> gradients;
    for (int i = 0; i < 6; ++i) gradients.push_back(torch::randn({400}));
    for (int i = 0; i < 3; ++i) whole.step(gradients[i]);
    std::map<std::string, at::Tensor> saved;
    for (const auto& [name, tensor] : whole.optimizer->state()) saved.emplace(name, tensor.clone());
    part.optimizer->load_state(saved);
    {
      const torch::NoGradGuard no_gradients;
      part.parameter.copy_(whole.parameter);
    }
    for (int i = 3; i < 6; ++i) {
      whole.step(gradients[i]);
      part.step(gradients[i]);
    }
    CHECK(torch::equal(whole.parameter, part.parameter));
  }
}
