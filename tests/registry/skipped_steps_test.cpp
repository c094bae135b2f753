#include <torch/nn/module.h>
#include <torch/types.h>

#include <limits>

#include "tests/registry/support.h"

using namespace trainrun;  // NOLINT(google-build-using-namespace)

namespace {

/// Two matrices and an optimizer of theirs.
class Trained {
 public:
  explicit Trained(const std::string& yaml) {
    torch::manual_seed(1);
    NamedTensors named;
    for (const char* name : {"a", "b"}) {
      parameters_.push_back(torch::randn({4, 3}).requires_grad_());
      named.emplace_back(name, parameters_.back());
    }
    const auto spec = test::read<Component<OptimizerKind>>(yaml, test::catalog());
    const OptimizerInputs inputs = group_parameters(spec, named);
    optimizer = spec.build(inputs);
    if (spec.common.state_dtype == StateDtype::kBf16) {
      optimizer = with_low_precision_state(std::move(optimizer), inputs);
    }
  }

  void step(double gradient, const at::Tensor& overflow) {
    torch::manual_seed(2);
    for (const at::Tensor& parameter : parameters_) parameter.mutable_grad() = torch::randn({4, 3}) * gradient;
    optimizer->step({optimizer->initial_rates(), {}, {}, overflow});
  }

  /// Weights and state, copied.
  std::map<std::string, at::Tensor> all() const {
    std::map<std::string, at::Tensor> all = {{"weight a", parameters_[0].detach().clone()},
                                             {"weight b", parameters_[1].detach().clone()}};
    for (const auto& [name, tensor] : optimizer->state()) all[name] = tensor.clone();
    return all;
  }

  std::unique_ptr<Optimizer> optimizer;

 private:
  Tensors parameters_;
};

void check_equal(const std::map<std::string, at::Tensor>& all, const std::map<std::string, at::Tensor>& expected) {
  CHECK(all.size() == expected.size());
  for (const auto& item : expected) {
    const auto& name = item.first;
    const auto& tensor = item.second;
    CAPTURE(name);
    REQUIRE(all.contains(name));
    CHECK(torch::equal(all.at(name), tensor));
  }
}

std::vector<std::string> every_optimizer() {
  const std::string wrapped = "{type: Lookahead, k: 1, optimizer: ASGD}";
  std::vector<std::string> all = {
      "{type: SGD, lr: 0.1, momentum: 0.9}",
      "{type: SGD, lr: 0.1, momentum: 0.9, dampening: 0.5}",
      "{type: Adam, state_dtype: bf16}",
      "{type: RMSprop, centered: true, momentum: 0.5, state_dtype: bf16}",
      "{type: Lookahead, optimizer: RMSprop, k: 2}",
      "{type: GradientCentralization, optimizer: NAdam}",
      "{type: ChainedOptimizer, optimizers: [{match: a, optimizer: Muon}, {optimizer: " + wrapped + "}]}"};
  for (const std::string& name : test::catalog().optimizers.names()) {
    if (name != "LBFGS" && name != "Lookahead" && name != "GradientCentralization" && name != "ChainedOptimizer") {
      all.push_back(name);
    }
  }
  return all;
}

}  // namespace

TEST_CASE("a step that every optimizer but LBFGS skips by itself leaves weights, state and counts as they were") {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const at::Tensor yes = torch::ones({});
  const at::Tensor no = torch::zeros({});
  for (const std::string& yaml : every_optimizer()) {
    CAPTURE(yaml);
    Trained skipping(yaml), plain(yaml);
    CHECK(skipping.optimizer->skips_overflow());
    for (const double gradient : {kInfinity, 1.0, kInfinity, kInfinity, 0.5, 2.0, kInfinity}) {
      const auto before = skipping.all();
      const bool overflows = gradient == kInfinity;
      skipping.step(gradient, overflows ? yes : no);
      if (overflows) {
        skipping.optimizer->last_step_was_skipped();
        check_equal(skipping.all(), before);
      } else {
        plain.step(gradient, at::Tensor());
        check_equal(skipping.all(), plain.all());
      }
    }
  }
}
