#include "registry/kernels/linear.h"

#include <ATen/Context.h>
#include <ATen/TensorOperators.h>
#include <ATen/autocast_mode.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/randn.h>
#include <torch/csrc/autograd/autograd.h>

#include <random>
#include <vector>

#include "tests/doctest.h"
#include "tests/own_products.h"
#include "tests/support.h"
#include "tests/tensor_errors.h"
#include "tests/threads.h"

using namespace trainrun;
using namespace trainrun::kernels;
using trainrun::test::error_of;
using trainrun::test::OwnProducts;

namespace {

struct Given {
  at::Tensor x, w, bias;
};
Given random_tensors(at::IntArrayRef x, int64_t out, bool has_bias) {
  return {at::randn(x).requires_grad_(), at::randn({out, x.back()}).requires_grad_(),
          has_bias ? at::randn({out}).requires_grad_() : at::Tensor()};
}

void check_linear(const Given& t, CpuPath path) {
  const auto wide = [](const at::Tensor& tensor) {
    return tensor.defined() ? tensor.detach().to(at::kDouble).requires_grad_() : tensor;
  };
  const Given exact{wide(t.x), wide(t.w), wide(t.bias)};
  const at::Tensor expected =
      at::linear(exact.x, exact.w, exact.bias.defined() ? std::optional(exact.bias) : std::nullopt);
  const at::Tensor y = kernels::linear(t.x, t.w, t.bias, path);
  REQUIRE(y.sizes() == expected.sizes());
  CHECK(error_of(y, expected.detach()) < 1e-6);
  const at::Tensor grad_y = at::randn(y.sizes());
  std::vector<at::Tensor> inputs{t.x, t.w}, exact_inputs{exact.x, exact.w};
  if (t.bias.defined()) {
    inputs.push_back(t.bias);
    exact_inputs.push_back(exact.bias);
  }
  const auto found = torch::autograd::grad({y}, inputs, {grad_y});
  const auto wanted = torch::autograd::grad({expected}, exact_inputs, {grad_y.to(at::kDouble)});
  for (size_t i = 0; i < inputs.size(); ++i) CHECK(error_of(found[i], wanted[i]) < 1e-6);
}

}  // namespace

TEST_CASE("linear of few rows equals float64's for any sizes, on every path and with any number of threads") {
  const OwnProducts own;
  at::manual_seed(5);
  std::mt19937 random(5);  // NOLINT(bugprone-random-generator-seed): the same on every run
  const auto from = [&](int64_t least, int64_t most) {
    return least + static_cast<int64_t>(random() % static_cast<uint64_t>(most - least + 1));
  };
  for (int i = 0; i < trainrun::test::fuzz_rounds(60); ++i) {
    const int64_t in = i % 5 == 0 ? from(1000, 2500) : from(64, 200), out = from(16, 150), rows = from(26, 128);
    CAPTURE(rows);
    CAPTURE(in);
    CAPTURE(out);
    const test::Threads threads(static_cast<int>(from(1, 3)));
    const Given t = random_tensors({rows, in}, out, from(0, 1) == 1);
    for (const CpuPath path : available_cpu_paths()) check_linear(t, path);
  }
}

TEST_CASE("linear of few rows is not ATen's where it pays, and ATen's, bit for bit, where it does not") {
  const Given few = random_tensors({32, 1000}, 100, true), fewer = random_tensors({8, 1000}, 100, true);
  const auto is_atens = [](const Given& t) {
    return kernels::linear(t.x, t.w, t.bias).equal(at::linear(t.x, t.w, t.bias));
  };
  const bool before = uses_own_products();
  use_own_products(false);
  CHECK(is_atens(few));
  use_own_products(true);
  CHECK(is_atens(fewer));
  CHECK(kernels::linear(few.x.to(at::kDouble), few.w.to(at::kDouble), {}).dtype() == at::kDouble);
  if (best_cpu_path() == CpuPath::kAvx512) {
    CHECK(few_rows_pay(32, 1000, 100));
    CHECK_FALSE(few_rows_pay(33, 1000, 100));
    CHECK_FALSE(few_rows_pay(32, 1000, 7));
    CHECK_FALSE(is_atens(few));
  }
  use_own_products(before);
}

TEST_CASE("linear of few rows: rows of several dimensions, an input with gaps, an output that is changed") {
  const OwnProducts own;
  check_linear(random_tensors({4, 8, 96}, 20, true), best_cpu_path());
  Given t = random_tensors({32, 96}, 20, true);
  t.x = at::randn({96, 32}).t().requires_grad_();
  check_linear(t, best_cpu_path());
  const Given u = random_tensors({32, 96}, 20, true);
  const at::Tensor y = kernels::linear(u.x, u.w, u.bias);
  const at::Tensor positive = y.detach().clamp_min(0);
  y.relu_();
  CHECK(y.equal(positive));
  const auto gradients = torch::autograd::grad({y.sum()}, {u.bias});
  CHECK(gradients[0].equal(positive.gt(0).to(at::kFloat).sum(0)));
}

TEST_CASE("linear of few rows has derivatives of second order") {
  const OwnProducts own;
  const Given t = random_tensors({32, 64}, 16, false);
  const auto second = [&](const at::Tensor& y) {
    const auto first = torch::autograd::grad({y.pow(3).sum()}, {t.x}, {}, true, true);
    return torch::autograd::grad({first[0].square().sum()}, {t.x, t.w});
  };
  const auto found = second(kernels::linear(t.x, t.w, {})), expected = second(at::linear(t.x, t.w));
  for (size_t i = 0; i < 2; ++i) CHECK(error_of(found[i], expected[i].to(at::kDouble)) < 1e-5);
}
