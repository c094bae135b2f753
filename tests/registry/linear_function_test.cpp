#include "registry/kernels/linear_function.h"

#include <ATen/Context.h>
#include <ATen/TensorOperators.h>
#include <ATen/autocast_mode.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/linspace.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/relu.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/autograd.h>

#include <limits>
#include <random>
#include <string>
#include <vector>

#include "registry/kernels/linear.h"
#include "tests/doctest.h"
#include "tests/support.h"
#include "tests/tensor_errors.h"
#include "tests/threads.h"

using namespace trainrun::kernels;
using trainrun::test::error_of;
using trainrun::test::Threads;

namespace {

/// While it lives, autocast to bfloat16.
struct HalfPrecision {
  explicit HalfPrecision(bool is_on) : on(is_on) {
    if (on) at::autocast::set_autocast_enabled(at::kCPU, true);
  }
  ~HalfPrecision() {
    if (!on) return;
    at::autocast::set_autocast_enabled(at::kCPU, false);
    at::autocast::clear_cache();
  }
  HalfPrecision(const HalfPrecision&) = delete;
  HalfPrecision& operator=(const HalfPrecision&) = delete;
  bool on;
};

const std::vector<Activation> kActivations = {Activation::kNone, Activation::kRelu, Activation::kGelu,
                                              Activation::kGeluTanh};

at::Tensor activated(const at::Tensor& x, Activation activation) {
  switch (activation) {
    case Activation::kRelu:
      return at::relu(x);
    case Activation::kGelu:
      return at::gelu(x);
    case Activation::kGeluTanh:
      return at::gelu(x, "tanh");
    default:
      return x;
  }
}

struct LinearCase {
  std::vector<int64_t> sizes;  // of x
  int64_t out;
  bool has_bias, is_transposed;
  Activation activation;
};

struct LinearInputs {
  at::Tensor x;
  LinearTerms terms;
  std::vector<at::Tensor> all() const {
    std::vector<at::Tensor> there = {x, terms.weight};
    if (terms.bias.defined()) there.push_back(terms.bias);
    return there;
  }
  LinearInputs as(at::ScalarType type) const {
    const auto copy = [&](const at::Tensor& tensor) {
      return tensor.defined() ? tensor.detach().to(type).requires_grad_() : tensor;
    };
    return {copy(x), {copy(terms.weight), copy(terms.bias), terms.is_transposed, terms.activation}};
  }
  at::Tensor by_aten() const {
    const auto bias = terms.bias.defined() ? std::optional(terms.bias) : std::nullopt;
    return activated(at::linear(x, terms.is_transposed ? terms.weight.t() : terms.weight, bias), terms.activation);
  }
};

LinearInputs inputs_of_linear(const LinearCase& c) {
  const int64_t in = c.sizes.back();
  const at::Tensor weight = at::randn(c.is_transposed ? at::IntArrayRef({in, c.out}) : at::IntArrayRef({c.out, in}));
  LinearInputs made{at::randn(c.sizes).requires_grad_(), {}};
  made.terms = {(weight / 4).detach().requires_grad_(), c.has_bias ? at::randn({c.out}).requires_grad_() : at::Tensor(),
                c.is_transposed, c.activation};
  return made;
}

/// Against float64; in bfloat16 no further from it than ATen's operations are, but for a little.
void check_linear_function(const LinearInputs& in, bool is_half, CpuPath path) {
  CAPTURE(is_half);
  CAPTURE(name_of(path));
  const LinearInputs wide = in.as(at::kDouble);
  const at::Tensor exact = wide.by_aten();
  const HalfPrecision half(is_half);
  REQUIRE(supports_linear_function(in.x, in.terms));
  const at::Tensor y = linear_function(in.x, in.terms, path), theirs = in.by_aten();
  REQUIRE(y.sizes() == exact.sizes());
  CHECK(y.dtype() == theirs.dtype());
  const at::Tensor grad_y = at::randn(y.sizes()).to(y.scalar_type());
  const auto wanted = torch::autograd::grad({exact}, wide.all(), {grad_y.to(at::kDouble)});
  const auto found = torch::autograd::grad({y}, in.all(), {grad_y});
  const auto aten = torch::autograd::grad({theirs}, in.all(), {grad_y});
  const auto bound = [&](const at::Tensor& by_aten, const at::Tensor& expected, bool may_vanish = false) {
    const double slack = is_half ? (may_vanish ? 5e-2 : 4e-3) : may_vanish ? 1e-5 : 2e-6;
    return 1.2 * error_of(by_aten.detach(), expected) + slack;
  };
  CHECK(error_of(y.detach(), exact.detach()) < bound(theirs, exact.detach()));
  for (size_t i = 0; i < found.size(); ++i) {
    CAPTURE(i);
    CHECK(found[i].dtype() == in.all()[i].dtype());
    // The sum of a single bias may nearly vanish.
    CHECK(error_of(found[i], wanted[i]) < bound(aten[i], wanted[i], i == 2));
  }
}

}  // namespace

TEST_CASE("a Linear as one node: random sizes equal float64 on every path and with any number of threads") {
  at::manual_seed(17);
  std::mt19937 random(17);  // NOLINT(bugprone-random-generator-seed): the same on every run
  const auto from = [&](int64_t least, int64_t most) {
    return least + static_cast<int64_t>(random() % static_cast<uint64_t>(most - least + 1));
  };
  for (int i = 0; i < trainrun::test::fuzz_rounds(50); ++i) {
    LinearCase c{{from(1, 60), from(1, 70)},
                 from(1, 90),
                 from(0, 1) == 1,
                 from(0, 2) == 0,
                 kActivations[static_cast<size_t>(from(0, 3))]};
    if (from(0, 1) == 1) c.sizes.insert(c.sizes.begin(), from(1, 4));
    const Threads threads(static_cast<int>(from(1, 3)));
    const LinearInputs in = inputs_of_linear(c);
    for (const CpuPath path : available_cpu_paths()) {
      for (const bool is_half : {false, true}) check_linear_function(in, is_half, path);
    }
  }
}

TEST_CASE("a Linear as one node has ATen's bits without an activation") {
  for (const bool is_half : {false, true}) {
    for (const bool is_transposed : {false, true}) {
      const LinearInputs in = inputs_of_linear({{3, 20, 40}, 30, true, is_transposed, Activation::kNone});
      const HalfPrecision half(is_half);
      const at::Tensor y = linear_function(in.x, in.terms), theirs = in.by_aten();
      CHECK(y.equal(theirs));
      const at::Tensor grad_y = at::randn(y.sizes()).to(y.scalar_type());
      const auto found = torch::autograd::grad({y}, in.all(), {grad_y});
      const auto expected = torch::autograd::grad({theirs}, in.all(), {grad_y});
      CHECK(found[0].equal(expected[0]));
      CHECK(found[1].equal(expected[1]));
      if (!is_half) CHECK(found[2].equal(expected[2]));
    }
  }
}

TEST_CASE("activations after a Linear: all of their range, NaN and infinities") {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  at::Tensor x = at::linspace(-12, 12, 4801).unsqueeze(1);
  const at::Tensor weight = at::ones({1, 1}).requires_grad_();
  for (const CpuPath path : available_cpu_paths()) {
    for (const Activation activation : kActivations) {
      CAPTURE(static_cast<int>(activation));
      const auto of = [&](const at::Tensor& values) {
        return linear_function(values, {weight, {}, false, activation}, path);
      };
      const at::Tensor y = of(x).detach(), exact = activated(x.to(at::kDouble), activation);
      CHECK((y - exact).abs().max().item<double>() < 1e-6);
      CHECK(error_of(y, exact) < 2e-7);
      const at::Tensor given = x.detach().requires_grad_(), wide = x.to(at::kDouble).requires_grad_();
      const at::Tensor slope = torch::autograd::grad({of(given)}, {given}, {at::ones(x.sizes())})[0];
      const at::Tensor exact_slope =
          torch::autograd::grad({activated(wide, activation)}, {wide}, {at::ones(x.sizes(), at::kDouble)})[0];
      if (activation != Activation::kRelu) CHECK((slope - exact_slope).abs().max().item<double>() < 3e-6);
      for (const double special : {std::numeric_limits<double>::quiet_NaN(), kInfinity, -kInfinity, 100.0, -100.0}) {
        const at::Tensor one = at::ones({1, 1}) * special;
        const at::Tensor found = of(one).detach(), expected = activated(one, activation);
        CAPTURE(special);
        if (activation != Activation::kGeluTanh || special != -kInfinity) {  // there ATen gives NaN, or -0.0
          CHECK(found.isnan().equal(expected.isnan()));
          if (!expected.isnan().item<bool>()) CHECK(at::allclose(found, expected, 0, 1e-30));
        }
      }
    }
  }
}

TEST_CASE("a Linear as one node: gradients of the second order are ATen's, also under autocast") {
  for (const bool is_half : {false, true}) {
    for (const Activation activation : kActivations) {
      const LinearInputs in = inputs_of_linear({{3, 5, 8}, 6, true, false, activation});
      const HalfPrecision half(is_half);
      const auto second = [&](const at::Tensor& y) {
        const auto first = torch::autograd::grad({y.square().sum()}, {in.x}, {}, true, true);
        return torch::autograd::grad({first[0].square().sum()}, in.all());
      };
      const auto found = second(linear_function(in.x, in.terms)), expected = second(in.by_aten());
      for (size_t i = 0; i < found.size(); ++i) {
        CHECK(error_of(found[i], expected[i].to(at::kDouble)) < (is_half ? 2e-2 : 1e-5));
      }
    }
  }
}

TEST_CASE("a Linear as one node: gradients of the second order where two layers share a weight") {
  const LinearInputs in = inputs_of_linear({{3, 5, 8}, 8, true, false, Activation::kGelu});
  const auto second = [&](const auto& layer) {
    const at::Tensor y = layer(layer(in.x));
    const auto first = torch::autograd::grad({y.square().sum()}, in.all(), {}, true, true);
    return torch::autograd::grad({first[0].square().sum() + first[1].square().sum()}, in.all());
  };
  const auto found = second([&](const at::Tensor& x) { return linear_function(x, in.terms); });
  const auto expected = second([&](const at::Tensor& x) { return LinearInputs{x, in.terms}.by_aten(); });
  for (size_t i = 0; i < found.size(); ++i) CHECK(error_of(found[i], expected[i].to(at::kDouble)) < 1e-5);
}

TEST_CASE("a Linear as one node: its output may be overwritten, and frozen parts get no gradient") {
  const LinearInputs in = inputs_of_linear({{3, 5, 8}, 6, true, false, Activation::kNone});
  at::Tensor y = linear_function(in.x, in.terms);
  CHECK_FALSE(y.is_view());
  at::relu_(y);
  const auto found = torch::autograd::grad({y}, in.all(), {at::ones(y.sizes())});
  const auto expected = torch::autograd::grad({at::relu(in.by_aten())}, in.all(), {at::ones(y.sizes())});
  for (size_t i = 0; i < found.size(); ++i) CHECK(error_of(found[i], expected[i].to(at::kDouble)) < 1e-6);

  LinearTerms frozen = in.terms;
  frozen.weight = frozen.weight.detach();
  const auto of_bias =
      torch::autograd::grad({linear_function(in.x.detach(), frozen)}, {in.terms.bias}, {at::ones(y.sizes())});
  CHECK(of_bias[0].eq(15).all().item<bool>());
}

TEST_CASE("a Linear as one node: a weight may change before the backward pass where that does not read it") {
  const LinearInputs in = inputs_of_linear({{4, 8}, 6, true, false, Activation::kGelu});
  const auto change = [&] {
    const c10::AutoGradMode no_gradients(false);
    at::Tensor(in.terms.weight).add_(1);
  };
  {
    const HalfPrecision half(true);  // the backward pass reads the copy
    const at::Tensor grad_y = at::ones({4, 6}, at::kBFloat16);
    const auto expected = torch::autograd::grad({linear_function(in.x, in.terms)}, in.all(), {grad_y});
    const at::Tensor y = linear_function(in.x, in.terms);
    change();
    const auto found = torch::autograd::grad({y}, in.all(), {grad_y});
    for (size_t i = 0; i < found.size(); ++i) CHECK(found[i].equal(expected[i]));
  }
  const at::Tensor y = linear_function(in.x.detach(), in.terms);  // the input's gradient would read it
  change();
  torch::autograd::grad({y}, {in.terms.weight}, {at::ones({4, 6})});
  const at::Tensor z = linear_function(in.x, in.terms);
  change();
  CHECK_THROWS_AS(torch::autograd::grad({z}, {in.x}, {at::ones({4, 6})}), c10::Error);
}

TEST_CASE("a Linear as one node: what it leaves to ATen") {
  const LinearInputs in = inputs_of_linear({{4, 8}, 6, true, false, Activation::kNone});
  CHECK(supports_linear_function(in.x, in.terms));
  CHECK_FALSE(supports_linear_function(in.x.to(at::kDouble), in.terms));
  CHECK_FALSE(supports_linear_function(in.x.to(at::kBFloat16), in.terms));  // without autocast
  CHECK_FALSE(supports_linear_function(in.x.slice(1, 0, 7), in.terms));
  CHECK_FALSE(supports_linear_function(in.x.slice(0, 0, 0), in.terms));
  CHECK_FALSE(supports_linear_function(in.x, {in.terms.weight.t().contiguous().t(), in.terms.bias}));
  const c10::AutoGradMode no_gradients(false);
  CHECK_FALSE(supports_linear_function(in.x, in.terms));
}
