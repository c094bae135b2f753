#include "registry/kernels/cross_entropy.h"

#include <ATen/autocast_mode.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>
#include <utility>

#include "tests/doctest.h"

using namespace trainrun::kernels;

namespace {

constexpr int64_t kRows = 300;
constexpr int64_t kClasses = 3511;

at::Tensor targets(double share_ignored = 0.2, int64_t ignore_index = -100) {
  at::Tensor target = at::randint(0, kClasses, {kRows}, at::kLong);
  target.masked_fill_(at::rand({kRows}) < share_ignored, ignore_index);
  return target;
}

/// The loss, and the gradient of the logits where `of` is that of the loss.
std::pair<at::Tensor, at::Tensor> with_gradient(const auto& formula, const at::Tensor& logits, const at::Tensor& of) {
  const at::Tensor x = logits.detach().clone().requires_grad_(true);
  const at::Tensor loss = formula(x);
  return {loss.detach(),
          torch::autograd::grad({loss}, {x}, {of.defined() ? of : at::full({}, 0.37, loss.options())})[0]};
}

void check_identical(const at::Tensor& logits, const at::Tensor& target, int64_t reduction,
                     int64_t ignore_index = -100) {
  CAPTURE(reduction);
  CHECK(supports_cross_entropy(logits, target));
  const at::Tensor of = reduction == at::Reduction::None ? at::rand({kRows}) : at::Tensor();
  const auto theirs = [&](const at::Tensor& x) {
    return at::cross_entropy_loss(x, target, {}, reduction, ignore_index);
  };
  const auto ours = [&](const at::Tensor& x) { return cross_entropy(x, target, reduction, ignore_index); };
  const at::Tensor given = of.defined() && logits.scalar_type() == at::kDouble ? of.to(at::kDouble) : of;
  const auto [expected, expected_gradient] = with_gradient(theirs, logits, given);
  const auto [found, gradient] = with_gradient(ours, logits, given);
  CHECK((found.scalar_type() == expected.scalar_type()));
  CHECK(at::allclose(found, expected, 0, 0, /*equal_nan=*/true));
  CHECK((gradient.scalar_type() == expected_gradient.scalar_type()));
  CHECK(at::allclose(gradient, expected_gradient, 0, 0, /*equal_nan=*/true));
  CHECK(at::allclose(cross_entropy(logits, target, reduction, ignore_index), expected, 0, 0, /*equal_nan=*/true));
}

struct Autocast {
  Autocast() { at::autocast::set_autocast_enabled(at::kCPU, true); }
  ~Autocast() { at::autocast::set_autocast_enabled(at::kCPU, false); }
};

}  // namespace

TEST_CASE("the loss and its gradients are ATen's, bit for bit") {
  for (const int64_t reduction : {at::Reduction::Mean, at::Reduction::Sum, at::Reduction::None}) {
    for (const at::ScalarType dtype : {at::kFloat, at::kDouble}) {
      const at::Tensor logits = at::randn({kRows, kClasses}).mul_(4).to(dtype);
      check_identical(logits, targets(), reduction);
      check_identical(logits, targets(0.2, 3), reduction, 3);
    }
  }
}

TEST_CASE("under autocast the loss of narrow logits is float32, and their gradient is narrow") {
  const Autocast autocast;
  for (const at::ScalarType dtype : {at::kBFloat16, at::kHalf, at::kFloat}) {
    check_identical(at::randn({kRows, kClasses}).mul_(4).to(dtype), targets(), at::Reduction::Mean);
  }
}

TEST_CASE("rows that do not count have no gradient, and where none counts the mean is not a number") {
  at::Tensor target = targets();
  target.slice(0, 0, 150).fill_(-100);
  check_identical(at::randn({kRows, kClasses}), target, at::Reduction::Mean);
  const at::Tensor logits = at::randn({kRows, kClasses}).requires_grad_(true);
  const at::Tensor loss = cross_entropy(logits, target.fill_(-100), at::Reduction::Mean, -100);
  CHECK(std::isnan(loss.item<float>()));
}

TEST_CASE("a target that is no class is refused as ATen refuses it") {
  const at::Tensor logits = at::randn({kRows, kClasses});
  for (const int64_t wrong : {int64_t{-1}, kClasses}) {
    at::Tensor target = targets();
    target[200] = wrong;
    CHECK_THROWS_AS(cross_entropy(logits, target, at::Reduction::Mean, -100), c10::IndexError);
  }
}

TEST_CASE("the gradient has a gradient, too") {
  const at::Tensor target = targets();
  const at::Tensor logits = at::randn({kRows, kClasses});
  const auto second = [&](const auto& formula) {
    const at::Tensor x = logits.clone().requires_grad_(true);
    const at::Tensor weighted = x * 3;
    const at::Tensor gradient = torch::autograd::grad({formula(weighted)}, {x}, {}, std::nullopt, true)[0];
    return torch::autograd::grad({gradient.square().sum()}, {x})[0];
  };
  const at::Tensor expected =
      second([&](const at::Tensor& x) { return at::cross_entropy_loss(x, target, {}, at::Reduction::Sum); });
  const at::Tensor found =
      second([&](const at::Tensor& x) { return cross_entropy(x, target, at::Reduction::Sum, -100); });
  CHECK(expected.abs().max().item<float>() > 0);
  CHECK(at::allclose(found, expected, 1e-6, 1e-9));
}

TEST_CASE("what is small, not contiguous or narrow without autocast is ATen's") {
  const at::Tensor target = targets();
  CHECK_FALSE(supports_cross_entropy(at::randn({10, 10}), target.slice(0, 0, 10)));
  CHECK_FALSE(supports_cross_entropy(at::randn({kClasses, kRows}).t(), target));
  CHECK_FALSE(supports_cross_entropy(at::randn({kRows, kClasses}).to(at::kBFloat16), target));
  const at::Tensor across = at::randn({kClasses, kRows}).t();
  CHECK(cross_entropy(across, target, at::Reduction::Mean, -100)
            .equal(at::cross_entropy_loss(across, target, {}, at::Reduction::Mean)));
}
