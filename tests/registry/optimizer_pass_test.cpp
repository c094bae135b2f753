#include "registry/kernels/optimizer_pass.h"

#include <ATen/ops/_foreach_add.h>
#include <ATen/ops/_foreach_mul.h>
#include <ATen/ops/_fused_adam.h>
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/_fused_sgd.h>
#include <torch/types.h>

#include <cmath>
#include <condition_variable>
#include <limits>
#include <mutex>
#include <thread>

#include "tests/registry/support.h"

using namespace trainrun;  // NOLINT(google-build-using-namespace)

namespace {

// One of less than a vector, some that end with one or without, one that several threads share.
const std::vector<int64_t> kSizes = {1, 7, 8, 15, 16, 31, 4099, 36001};

Tensors copies_of(const Tensors& tensors) {
  Tensors copies;
  for (const at::Tensor& tensor : tensors) copies.push_back(tensor.clone());
  return copies;
}

Tensors random_like(const Tensors& tensors, double scale) {
  Tensors random;
  for (const at::Tensor& tensor : tensors) random.push_back(at::randn_like(tensor).mul_(scale));
  return random;
}

Tensors zeros_of(const Tensors& tensors) {
  Tensors zeros;
  for (const at::Tensor& tensor : tensors) zeros.push_back(at::zeros_like(tensor));
  return zeros;
}

/// NaN equals NaN.
bool are_identical(const Tensors& a, const Tensors& b) {
  for (size_t i = 0; i < a.size(); ++i) {
    if (!at::allclose(a[i], b[i], 0, 0, /*equal_nan=*/true)) return false;
  }
  return a.size() == b.size();
}

/// Parameters, state lists, and a clip factor, twice.
struct TwinParameters {
  explicit TwinParameters(at::ScalarType dtype) : factor(at::full({}, 0.737, at::kFloat)) {
    for (const int64_t size : kSizes) parameters.push_back(at::randn({size}, dtype));
    parameters.push_back(at::randn({3, 5, 4, 2}, dtype).contiguous(at::MemoryFormat::ChannelsLast));
    of_aten = copies_of(parameters);
    for (int k = 0; k < 3; ++k) state.push_back(zeros_of(parameters)), state_of_aten.push_back(zeros_of(parameters));
  }
  void check() const {
    CHECK(are_identical(parameters, of_aten));
    for (size_t k = 0; k < state.size(); ++k) CHECK(are_identical(state[k], state_of_aten[k]));
  }
  at::Tensor factor;
  Tensors parameters, of_aten;
  std::vector<Tensors> state, state_of_aten;
};

void compare_adam(at::ScalarType dtype, double beta1, double weight_decay, bool is_decoupled, bool amsgrad,
                  bool maximize) {
  TwinParameters twins(dtype);
  const Tensors counts(twins.parameters.size(), at::zeros({}));
  const at::Tensor& count = counts[0];
  for (int step = 1; step <= 4; ++step) {
    const Tensors gradients = random_like(twins.parameters, 0.1);
    if (step == 4) gradients[6][4098] = std::numeric_limits<double>::quiet_NaN(), gradients[6][3] = INFINITY;
    kernels::AdamPass pass({twins.factor});
    const auto numbers = kernels::adam_numbers(1e-3, beta1, 0.999, 1e-8, weight_decay, is_decoupled, amsgrad, step);
    for (size_t i = 0; i < gradients.size(); ++i) {
      REQUIRE(kernels::is_for_optimizer_pass(twins.parameters[i]));
      pass.add(twins.parameters[i], gradients[i],
               {twins.state[0][i], twins.state[1][i], amsgrad ? twins.state[2][i] : at::Tensor()}, numbers, maximize);
    }
    pass.run();
    at::_foreach_mul_(gradients, twins.factor);
    count.fill_(step);
    const auto call = [&](auto kernel) {
      kernel(twins.of_aten, gradients, twins.state_of_aten[0], twins.state_of_aten[1],
             amsgrad ? twins.state_of_aten[2] : Tensors(), counts, 1e-3, beta1, 0.999, weight_decay, 1e-8, amsgrad,
             maximize);
    };
    if (is_decoupled) {
      call([](auto&&... arguments) { at::_fused_adamw_(arguments...); });
    } else {
      call([](auto&&... arguments) { at::_fused_adam_(arguments...); });
    }
    twins.check();
  }
}

void compare_sgd(at::ScalarType dtype, double momentum, double weight_decay, bool nesterov, bool maximize) {
  TwinParameters twins(dtype);
  const double dampening = nesterov ? 0 : 0.1;
  for (int step = 1; step <= 3; ++step) {
    const Tensors gradients = random_like(twins.parameters, 0.1);
    kernels::SgdPass pass({twins.factor});
    for (size_t i = 0; i < gradients.size(); ++i) {
      pass.add(twins.parameters[i], gradients[i], {twins.state[0][i]},
               {0.1, weight_decay, momentum, 1 - dampening, nesterov, step == 1}, maximize);
    }
    pass.run();
    at::_foreach_mul_(gradients, twins.factor);
    at::_fused_sgd_(twins.of_aten, gradients, momentum == 0 ? Tensors() : twins.state_of_aten[0], weight_decay,
                    momentum, 0.1, dampening, nesterov, maximize, step == 1);
    twins.check();
  }
}

/// Waits until so many threads have come, again and again.
class Meeting {
 public:
  explicit Meeting(int64_t threads) : threads_(threads) {}
  void wait() {
    std::unique_lock lock(mutex_);
    const int64_t round = come_ / threads_;
    ++come_;
    all_came_.notify_all();
    all_came_.wait(lock, [&] { return come_ / threads_ > round; });
  }

 private:
  int64_t threads_;
  int64_t come_ = 0;
  std::mutex mutex_;
  std::condition_variable all_came_;
};

/// Ranks with parameters of their own and one state make steps together; they end with what one alone makes of it.
void compare_divided(at::ScalarType dtype, int64_t ranks) {
  Tensors parameters;
  for (const int64_t size : {5000, 1, 2048, 0, 6150, 33}) parameters.push_back(at::randn({size}, dtype));
  const Tensors gradients = random_like(parameters, 0.1);
  std::vector<Tensors> owned;
  for (int64_t rank = 0; rank <= ranks; ++rank) owned.push_back(copies_of(parameters));  // the last: of one alone
  const std::vector<Tensors> state = {zeros_of(parameters), zeros_of(parameters), zeros_of(parameters),
                                      zeros_of(parameters)};  // of the ranks, and of one alone
  std::vector<char> exchange(static_cast<size_t>(kernels::exchange_bytes(parameters)));
  Meeting meeting(ranks);
  const auto steps = [&](const Tensors& own, size_t list, const StepDivision* division) {
    for (int step = 1; step <= 3; ++step) {
      kernels::AdamPass pass({});
      const auto numbers = kernels::adam_numbers(1e-2, 0.9, 0.999, 1e-8, 0.01, true, false, step);
      for (size_t i = 0; i < own.size(); ++i) {
        pass.add(own[i], gradients[i], {state[list][i], state[list + 1][i], at::Tensor()}, numbers, false);
      }
      pass.run(division);
      if (division) meeting.wait();  // in a job, the next step's gradients
    }
  };
  std::vector<std::thread> threads;
  for (int64_t rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      const StepDivision division = {rank, ranks, exchange.data(), [&] { meeting.wait(); }, nullptr};
      steps(owned[static_cast<size_t>(rank)], 0, &division);
    });
  }
  for (std::thread& thread : threads) thread.join();
  steps(owned.back(), 2, nullptr);
  for (size_t i = 0; i < parameters.size(); ++i) {
    for (const Tensors& own : owned) CHECK(at::equal(own[i], owned.back()[i]));
    CHECK(at::equal(state[0][i], state[2][i]));
    CHECK(at::equal(state[1][i], state[3][i]));
  }
}

}  // namespace

TEST_CASE("a step that ranks divide is the step of one, bit for bit") {
  if (!kernels::is_for_optimizer_pass(at::zeros({1}))) return;  // this processor takes ATen's kernels
  for (const at::ScalarType dtype : {at::kFloat, at::kDouble}) {
    for (const int64_t ranks : {1, 2, 3, 12}) compare_divided(dtype, ranks);  // some of 12 have no share
  }
}

TEST_CASE("an optimizer's one pass gives what ATen's fused kernels give for clipped gradients, bit for bit") {
  if (!kernels::is_for_optimizer_pass(at::zeros({1}))) return;  // this processor takes ATen's kernels
  torch::manual_seed(3);
  for (const at::ScalarType dtype : {at::kFloat, at::kDouble}) {
    for (const double weight_decay : {0.0, 0.01}) {
      for (const bool maximize : {false, true}) {
        // The flag: decoupled decay, Nesterov's momentum. The same loops take the sanitizers a while.
        for (const bool flag : {false, true}) {
          if (test::kIsSanitized && flag != maximize) continue;
          CAPTURE(weight_decay);
          CAPTURE(maximize);
          CAPTURE(flag);
          compare_adam(dtype, 0.9, weight_decay, flag, /*amsgrad=*/maximize, maximize);
          compare_adam(dtype, 0.3, weight_decay, flag, /*amsgrad=*/!maximize, maximize);
          compare_sgd(dtype, 0.9, weight_decay, flag, maximize);
          if (!flag) compare_sgd(dtype, 0, weight_decay, flag, maximize);
        }
      }
    }
  }
}

namespace {

// Each option that changes what an element is computed with.
const std::vector<std::string> kWalkedOptimizers = {
    "{type: RMSprop}",
    "{type: RMSprop, momentum: 0.9, weight_decay: 0.1, maximize: true}",
    "{type: RMSprop, centered: true, alpha: 0.4}",
    "{type: RMSprop, centered: true, momentum: 0.5, weight_decay: 0.1}",
    "{type: Adagrad}",
    "{type: Adagrad, lr_decay: 0.1, initial_accumulator_value: 0.2, weight_decay: 0.1, maximize: true}",
    "{type: Adadelta}",
    "{type: Adadelta, rho: 0.7, eps: 1e-3, weight_decay: 0.1, maximize: true}",
    "{type: Adamax}",
    "{type: Adamax, betas: [0.3, 0.9], weight_decay: 0.1, maximize: true}",
    "{type: NAdam}",
    "{type: NAdam, betas: [0.3, 0.9], weight_decay: 0.1, maximize: true, momentum_decay: 0.1}",
    "{type: NAdam, weight_decay: 0.1, decoupled_weight_decay: true}",
    "{type: RAdam}",
    "{type: RAdam, betas: [0.3, 0.9], weight_decay: 0.1, maximize: true}",
    "{type: RAdam, betas: [0.9, 0.99], weight_decay: 0.1, decoupled_weight_decay: true}",
    "{type: ASGD}",
    "{type: ASGD, lambd: 0.1, alpha: 0.5, t0: 2, weight_decay: 0.1, maximize: true}",
    "{type: Rprop}",
    "{type: Rprop, etas: [0.4, 1.7], step_sizes: [0.005, 0.02], maximize: true}",
    "{type: Lion}",
    "{type: Lion, betas: [0.3, 0.4], weight_decay: 0.1, maximize: true}",
};

/// Weights and state after some steps: in one walk, or, as for a step that may be skipped, by operations on lists.
Tensors trained(const std::string& yaml, at::ScalarType dtype, bool in_one_walk) {
  torch::manual_seed(6);
  NamedTensors parameters;
  const TwinParameters random(dtype);
  for (const at::Tensor& tensor : random.parameters) {
    parameters.emplace_back("p" + std::to_string(parameters.size()), tensor.clone().requires_grad_());
  }
  const auto spec = test::read<Component<OptimizerKind>>(yaml, test::catalog());
  const auto optimizer = spec.build(group_parameters(spec, parameters));
  const at::Tensor no_overflow = in_one_walk ? at::Tensor() : at::zeros({});
  for (int step = 1; step <= 12; ++step) {
    Tensors gradients = random_like(random.parameters, 0.1);
    gradients[4].zero_();
    if (step > 9) gradients[6][4098] = std::numeric_limits<double>::quiet_NaN(), gradients[6][3] = INFINITY;
    const at::Tensor before = gradients[7].clone();
    for (size_t i = 0; i < gradients.size(); ++i) {
      const bool has_none = step < 3 ? i == 1 : step == 6 && i == 2;
      parameters[i].second.mutable_grad() = has_none ? at::Tensor() : gradients[i];
    }
    std::vector<GroupRates> rates = optimizer->initial_rates();
    rates[0].lr *= 1 + 0.1 * step;
    optimizer->step({rates, {}, {random.factor}, no_overflow});
    CHECK(torch::equal(gradients[7], before) == in_one_walk);  // operations on lists multiply gradients in place
  }
  Tensors all;
  for (const auto& [unused, tensor] : parameters) all.push_back(tensor.detach());
  for (const auto& [unused, tensor] : optimizer->state()) all.push_back(tensor);
  return all;
}

}  // namespace

TEST_CASE("an optimizer's one walk gives what ATen's operations on lists give for clipped gradients, bit for bit") {
  if (!kernels::is_for_optimizer_pass(at::zeros({1}))) return;  // this processor takes ATen's kernels
  for (const std::string& yaml : kWalkedOptimizers) {
    CAPTURE(yaml);
    for (const at::ScalarType dtype : {at::kFloat, at::kDouble}) {
      if (test::kIsSanitized && dtype == at::kDouble) continue;  // the same template takes them a while
      CAPTURE(dtype);
      CHECK(are_identical(trained(yaml, dtype, true), trained(yaml, dtype, false)));
    }
  }
}

TEST_CASE("what has gaps or another type is not for an optimizer's one pass, and what has no elements stays so") {
  CHECK_FALSE(kernels::is_for_optimizer_pass(at::zeros({2}, at::kBFloat16)));
  CHECK_FALSE(kernels::is_for_optimizer_pass(at::zeros({4, 4}).select(1, 0)));
  CHECK_FALSE(kernels::is_for_optimizer_pass(at::zeros({1}).expand({4})));
  kernels::SgdPass pass({});
  pass.add(at::zeros({0}), at::zeros({0}), {}, {}, false);
  pass.run();
}

TEST_CASE("a channels_last parameter whose gradient is contiguous learns as a contiguous one") {
  for (const std::string yaml : {"{type: SGD, lr: 0.1, momentum: 0.9}", "{type: AdamW, lr: 0.1}"}) {
    const auto spec = test::read<Component<OptimizerKind>>(yaml, test::catalog());
    const auto run = [&](at::MemoryFormat format) {
      torch::manual_seed(5);
      NamedTensors parameters;
      for (const char* name : {"a", "b"}) {
        parameters.emplace_back(name, torch::randn({8, 4, 3, 3}).contiguous(format).requires_grad_());
      }
      const auto optimizer = spec.build(group_parameters(spec, parameters));
      for (int step = 0; step < 2; ++step) {
        for (const auto& [name, tensor] : parameters) tensor.mutable_grad() = torch::randn({8, 4, 3, 3});
        optimizer->step({optimizer->initial_rates()});
      }
      return Tensors{parameters[0].second.detach(), parameters[1].second.detach()};
    };
    CHECK(are_identical(run(at::MemoryFormat::ChannelsLast), run(at::MemoryFormat::Contiguous)));
  }
}

TEST_CASE("an optimizer that takes factors steps as from gradients that were multiplied before") {
  for (const std::string& name : test::catalog().optimizers.names()) {
    CAPTURE(name);
    const bool wraps = name == "Lookahead" || name == "GradientCentralization";
    const std::string yaml = wraps ? "{type: " + name + ", optimizer: {type: SGD, momentum: 0.9}}"
                             : name == "ChainedOptimizer" ? "{type: " + name + ", optimizers: [{optimizer: Adam}]}"
                                                          : "{type: " + name + ", lr: 0.1}";
    const auto spec = test::read<Component<OptimizerKind>>(yaml, test::catalog());
    const auto run = [&](const Tensors& factors) {
      torch::manual_seed(4);
      const at::Tensor matrix = torch::randn({20, 30}).requires_grad_();
      const at::Tensor without = torch::randn({2, 2}).requires_grad_();
      const at::Tensor before = without.detach().clone();
      const auto optimizer = spec.build(group_parameters(spec, {{"a", matrix}, {"b", without}}));
      if (!optimizer->takes_factors()) return Tensors();
      for (int step = 0; step < 3; ++step) {
        matrix.mutable_grad() = torch::randn({20, 30});
        if (factors.empty()) matrix.mutable_grad().mul_(0.7F).mul_(0.3F);
        optimizer->step({optimizer->initial_rates(), {}, factors});
      }
      CHECK(torch::equal(without.detach(), before));
      Tensors all = {matrix.detach()};
      for (const auto& [unused, tensor] : optimizer->state()) all.push_back(tensor);
      return all;
    };
    const Tensors folded = run({at::full({}, 0.7F), at::full({}, 0.3F)});
    CHECK(folded.empty() == (name == "LBFGS" || name == "GradientCentralization"));
    CHECK(are_identical(folded, run({})));
  }
}
