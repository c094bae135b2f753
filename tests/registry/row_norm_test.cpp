#include "registry/kernels/row_norm.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/TensorOperators.h>
#include <ATen/autocast_mode.h>
#include <ATen/ops/dropout.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/rms_norm.h>
#include <torch/csrc/autograd/autograd.h>

#include <limits>
#include <random>
#include <string>
#include <vector>

#include "tests/doctest.h"
#include "tests/support.h"
#include "tests/tensor_errors.h"
#include "tests/threads.h"

using namespace trainrun::kernels;
using trainrun::test::error_of;
using trainrun::test::Threads;

namespace {

struct NormCase {
  int64_t rows, features;
  bool is_rms = false;
  bool has_weight = true;
  bool has_bias = true;
  int addend = 0;  // 1: float32, 2: bfloat16
  double dropout = 0;
  bool wants_plain = true;
  bool wants_half = false;
};

std::string text_of_norm(const NormCase& c) {
  return std::to_string(c.rows) + " x " + std::to_string(c.features) + (c.is_rms ? ", RMS" : "") +
         (c.has_weight ? ", weight" : "") + (c.has_bias ? ", bias" : "") + ", addend " + std::to_string(c.addend) +
         ", dropout " + std::to_string(c.dropout) + (c.wants_plain ? ", plain" : "") + (c.wants_half ? ", half" : "");
}

struct NormInputs {
  at::Tensor x, addend, weight, bias;
  std::vector<at::Tensor> all() const {
    std::vector<at::Tensor> there;
    for (const at::Tensor& tensor : {x, addend, weight, bias}) {
      if (tensor.defined()) there.push_back(tensor);
    }
    return there;
  }
  NormTerms terms(const NormCase& c) const { return {weight, bias, 1e-5, c.is_rms}; }
};

NormInputs inputs_of_norm(const NormCase& c) {
  NormInputs in;
  in.x = (at::randn({c.rows, c.features}) * 3 + 1).requires_grad_();
  if (c.addend > 0) {
    in.addend = at::randn({c.rows, c.features}).to(c.addend == 2 ? at::kBFloat16 : at::kFloat).requires_grad_();
  }
  if (c.has_weight) in.weight = at::randn({c.features}).requires_grad_();
  if (c.has_bias && !c.is_rms) in.bias = at::randn({c.features}).requires_grad_();
  return in;
}

/// By ATen's operations in float64, with the dropout's draws for this addend.
struct Expected {
  NormInputs in;
  at::Tensor y, sum;
};
Expected by_definition(const NormCase& c, const NormInputs& given) {
  const auto wide = [](const at::Tensor& tensor) {
    return tensor.defined() ? tensor.detach().to(at::kDouble).requires_grad_() : tensor;
  };
  const auto maybe = [](const at::Tensor& tensor) { return tensor.defined() ? std::optional(tensor) : std::nullopt; };
  Expected e;
  e.in = {wide(given.x), wide(given.addend), wide(given.weight), wide(given.bias)};
  e.sum = e.in.x;
  if (c.addend > 0) {
    const at::Tensor kept = at::dropout(at::ones(given.addend.sizes()), c.dropout, true).gt(0).to(at::kDouble);
    e.sum = e.sum + e.in.addend * kept / (1 - c.dropout);
  }
  e.y = c.is_rms ? at::rms_norm(e.sum, c.features, maybe(e.in.weight), 1e-5)
                 : at::layer_norm(e.sum, c.features, maybe(e.in.weight), maybe(e.in.bias), 1e-5);
  return e;
}

void check_norm(const NormCase& c, CpuPath path) {
  CAPTURE(text_of_norm(c));
  CAPTURE(name_of(path));
  const NormInputs in = inputs_of_norm(c);
  at::manual_seed(7);
  const Expected e = by_definition(c, in);
  at::manual_seed(7);
  const NormAddend addend{in.addend, c.dropout};
  REQUIRE(supports_row_norm(in.x, addend, in.terms(c)));
  const Normalized found = row_norm(in.x, addend, in.terms(c), c.wants_plain, c.wants_half, path);
  CHECK(found.y.defined() == c.wants_plain);
  CHECK(found.half.defined() == c.wants_half);
  CHECK(found.sum.defined() == (c.addend > 0));
  std::vector<at::Tensor> outputs, exact, gradients, exact_gradients;
  const auto compare = [&](const at::Tensor& output, const at::Tensor& expected, double bound) {
    if (!output.defined()) return;
    CHECK(error_of(output.detach(), expected.detach()) < bound);
    outputs.push_back(output);
    exact.push_back(expected);
    gradients.push_back(at::randn(output.sizes()).to(output.scalar_type()));
    exact_gradients.push_back(gradients.back().to(at::kDouble));
  };
  compare(found.y, e.y, 1e-6);
  compare(found.half, e.y, 4e-3);
  compare(found.sum, e.sum, 1e-6);
  const auto ours = torch::autograd::grad(outputs, in.all(), gradients);
  const auto wanted = torch::autograd::grad(exact, e.in.all(), exact_gradients);
  for (size_t i = 0; i < ours.size(); ++i) {
    CAPTURE(i);
    const at::Tensor input = in.all()[i];
    CHECK(ours[i].dtype() == input.dtype());
    CHECK(error_of(ours[i], wanted[i]) < (input.scalar_type() == at::kFloat ? 2e-6 : 4e-3));
  }
}

}  // namespace

TEST_CASE("row norm: random sizes equal float64 on every path and with any number of threads") {
  std::mt19937 random(13);  // NOLINT(bugprone-random-generator-seed): the same on every run
  const auto from = [&](int64_t least, int64_t most) {
    return least + static_cast<int64_t>(random() % static_cast<uint64_t>(most - least + 1));
  };
  for (int i = 0; i < trainrun::test::fuzz_rounds(80); ++i) {
    NormCase c{from(1, 90), from(2, 150)};
    if (i % 10 == 0) c = {from(100, 500), from(300, 800)};
    c.is_rms = from(0, 2) == 0;
    c.has_weight = from(0, 3) != 0;
    c.has_bias = c.has_weight && from(0, 2) != 0;
    c.addend = static_cast<int>(from(0, 2));
    if (c.addend > 0 && from(0, 2) == 0) c.dropout = 0.3;
    c.wants_half = from(0, 1) == 0;
    c.wants_plain = !c.wants_half || from(0, 1) == 0;
    const Threads threads(static_cast<int>(from(1, 3)));
    for (const CpuPath path : available_cpu_paths()) check_norm(c, path);
  }
}

TEST_CASE("row norm: the sum is ATen's, bit for bit, and so are a dropout's draws and the generator afterwards") {
  for (const int kind : {1, 2}) {
    const NormCase c{33, 70, false, true, true, kind, 0.25};
    const NormInputs in = inputs_of_norm(c);
    CHECK(row_norm(in.x, {in.addend}, in.terms(c), true, false).sum.equal(in.x + in.addend));
    at::manual_seed(3);
    const at::Tensor theirs = in.x + at::dropout(in.addend, c.dropout, true);
    const at::Tensor state = at::detail::getDefaultCPUGenerator().get_state();
    at::manual_seed(3);
    const at::Tensor ours = row_norm(in.x, {in.addend, c.dropout}, in.terms(c), true, false).sum;
    CHECK(at::detail::getDefaultCPUGenerator().get_state().equal(state));
    CHECK(error_of(ours.detach(), theirs.detach().to(at::kDouble)) < (kind == 1 ? 1e-7 : 1e-2));
  }
}

TEST_CASE("row norm: gradients do not depend on the number of threads, and one that nobody asks for is not needed") {
  const NormCase c{400, 300, false, true, true, 2};
  const NormInputs in = inputs_of_norm(c);
  const at::Tensor grad_y = at::randn({c.rows, c.features});
  const auto gradients = [&](int threads) {
    const Threads some(threads);
    const Normalized found = row_norm(in.x, {in.addend}, in.terms(c), true, true);
    return torch::autograd::grad({found.y}, in.all(), {grad_y});
  };
  const auto one = gradients(1), three = gradients(3);
  for (size_t i = 0; i < one.size(); ++i) CHECK(one[i].equal(three[i]));
  const Normalized found = row_norm(in.x, {in.addend}, in.terms(c), true, true);
  const auto of_sum = torch::autograd::grad({found.sum}, {in.x, in.addend}, {grad_y});
  CHECK(of_sum[0].equal(grad_y));
  CHECK(of_sum[1].equal(grad_y.to(at::kBFloat16)));
}

TEST_CASE("row norm: gradients of the second order are ATen's") {
  for (const NormCase& c : std::vector<NormCase>{{5, 9}, {5, 9, true}, {4, 20, false, true, true, 1}}) {
    const NormInputs in = inputs_of_norm(c);
    const auto second = [&](const at::Tensor& y, const at::Tensor& sum, const NormInputs& of) {
      at::Tensor loss = y.square().sum();
      if (c.addend > 0) loss = loss + (sum * y).sum();
      const auto first = torch::autograd::grad({loss}, {of.x}, {}, true, true);
      return torch::autograd::grad({first[0].square().sum()}, of.all(), {}, false, false, true);
    };
    const Expected e = by_definition(c, in);
    const auto expected = second(e.y, e.sum, e.in);
    const Normalized y = row_norm(in.x, {in.addend}, in.terms(c), true, false);
    const auto found = second(y.y, y.sum, in);
    REQUIRE(found.size() == expected.size());
    for (size_t i = 0; i < found.size(); ++i) {
      CAPTURE(i);
      REQUIRE(found[i].defined() == expected[i].defined());
      if (found[i].defined()) CHECK(error_of(found[i], expected[i]) < 1e-4);
    }
  }
}

TEST_CASE("row norm: NaN and infinities stay in their rows") {
  for (const CpuPath path : available_cpu_paths()) {
    for (const double special : {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
      const NormCase c{6, 37};
      const NormInputs in = inputs_of_norm(c);
      const at::Tensor x = in.x.detach().clone();
      x.select(0, 2).select(0, 5).fill_(special);
      const at::Tensor found = row_norm(x, {}, in.terms(c), true, false, path).y;
      CHECK(found.isnan().equal(at::layer_norm(x, c.features, in.weight, in.bias, 1e-5).isnan()));
    }
  }
}

TEST_CASE("row norm: what it leaves to ATen") {
  const NormCase c{6, 8, false, true, true, 1};
  const NormInputs in = inputs_of_norm(c);
  CHECK(supports_row_norm(in.x, {in.addend}, in.terms(c)));
  CHECK_FALSE(supports_row_norm(in.x.t(), {}, {}));
  CHECK_FALSE(supports_row_norm(in.x.to(at::kDouble), {}, {}));
  CHECK_FALSE(supports_row_norm(in.x.to(at::kBFloat16), {}, {}));
  CHECK_FALSE(supports_row_norm(in.x, {in.addend.slice(0, 0, 1)}, in.terms(c)));
  CHECK_FALSE(supports_row_norm(in.x, {in.addend.to(at::kHalf)}, in.terms(c)));
  CHECK_FALSE(supports_row_norm(in.x, {in.addend, 1}, in.terms(c)));
  CHECK_FALSE(supports_row_norm(in.x, {}, {.weight = at::ones({6, 8})}));
  CHECK_FALSE(supports_row_norm(at::ones({0, 8}), {}, {}));
}
