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
#include <limits>
#include <random>
#include <utility>

#include "tests/doctest.h"
#include "tests/support.h"
#include "tests/tensor_errors.h"

using namespace trainrun::kernels;
using trainrun::test::error_of;

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
  return {loss.detach(), torch::autograd::grad({loss}, {x}, {of.to(loss.scalar_type())})[0]};
}

struct Autocast {
  explicit Autocast(bool on) { at::autocast::set_autocast_enabled(at::kCPU, on); }
  ~Autocast() { at::autocast::set_autocast_enabled(at::kCPU, false); }
};

/// On every path, against float64; the gradient of narrow logits is rounded to their type.
void check_loss(const at::Tensor& logits, const at::Tensor& target, int64_t reduction, int64_t ignore_index = -100) {
  CAPTURE(reduction);
  const bool is_narrow = logits.scalar_type() == at::kBFloat16;
  const at::Tensor of = reduction == at::Reduction::None ? at::rand({logits.size(0)}) : at::full({}, 0.37);
  const auto theirs = [&](const at::Tensor& x) {
    return at::cross_entropy_loss(x, target, {}, reduction, ignore_index);
  };
  const auto [exact, exact_gradient] = with_gradient(theirs, logits.to(at::kDouble), of);
  const Autocast autocast(is_narrow);
  CHECK(supports_cross_entropy(logits, target));
  for (const CpuPath path : available_cpu_paths()) {
    CAPTURE(name_of(path));
    const auto ours = [&](const at::Tensor& x) { return cross_entropy(x, target, reduction, ignore_index, path); };
    const auto [found, gradient] = with_gradient(ours, logits, of);
    CHECK((found.scalar_type() == at::kFloat));
    CHECK(error_of(found, exact) < 1e-6);
    CHECK((gradient.scalar_type() == logits.scalar_type()));
    CHECK(error_of(gradient, exact_gradient) < (is_narrow ? 3e-3 : 1e-6));
    CHECK(error_of(ours(logits), exact) < 1e-6);
  }
}

}  // namespace

TEST_CASE("the loss and its gradients are float64's but for rounding") {
  for (const int64_t reduction : {at::Reduction::Mean, at::Reduction::Sum, at::Reduction::None}) {
    for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
      const at::Tensor logits = at::randn({kRows, kClasses}).mul_(4).to(dtype);
      check_loss(logits, targets(), reduction);
      check_loss(logits, targets(0.2, 3), reduction, 3);
    }
  }
}

TEST_CASE("cross entropy: any sizes, and logits far from 0, are as precise") {
  std::mt19937 random(8);  // NOLINT(bugprone-random-generator-seed): the same on every run
  for (int i = 0; i < trainrun::test::fuzz_rounds(40); ++i) {
    const auto classes = static_cast<int64_t>(random() % 3000 + 2);
    const int64_t rows = 20000 / classes + 1 + static_cast<int64_t>(random() % 7);
    CAPTURE(classes);
    const double scale = i % 2 == 0 ? 1 : 30, away = i % 3 == 0 ? -500 : 0;
    const at::Tensor logits = at::randn({rows, classes}).mul_(scale).add_(away);
    check_loss(logits, at::randint(0, classes, {rows}, at::kLong), at::Reduction::Mean);
  }
}

TEST_CASE("logits of minus infinity are classes of probability 0, and NaN stays one") {
  at::Tensor logits = at::randn({kRows, kClasses});
  logits.slice(1, 5, 1000).fill_(-std::numeric_limits<float>::infinity());
  const at::Tensor target = at::full({kRows}, 3, at::kLong);
  check_loss(logits, target, at::Reduction::Mean);
  logits[7][2000] = std::numeric_limits<float>::quiet_NaN();
  const at::Tensor losses = cross_entropy(logits, target, at::Reduction::None, -100);
  CHECK(losses.isnan().sum().item<int64_t>() == 1);
  CHECK(std::isnan(losses[7].item<float>()));
}

TEST_CASE("under autocast what the loops do not compute is ATen's, in float32") {
  const Autocast autocast(true);
  const at::Tensor target = targets();
  for (const at::Tensor& logits :
       {at::randn({kRows, kClasses}).to(at::kHalf), at::randn({kClasses, kRows}).to(at::kBFloat16).t()}) {
    CHECK_FALSE(supports_cross_entropy(logits, target));
    const at::Tensor loss = cross_entropy(logits, target, at::Reduction::Mean, -100);
    CHECK((loss.scalar_type() == at::kFloat));
    CHECK(error_of(loss, at::cross_entropy_loss(logits.to(at::kDouble), target)) < 1e-6);
  }
}

TEST_CASE("rows that do not count have no gradient, and where none counts the mean is not a number") {
  at::Tensor target = targets();
  target.slice(0, 0, 150).fill_(-100);
  check_loss(at::randn({kRows, kClasses}), target, at::Reduction::Mean);
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
  CHECK_FALSE(supports_cross_entropy(at::randn({kRows, kClasses}).to(at::kDouble), target));
  const at::Tensor across = at::randn({kClasses, kRows}).t();
  CHECK(cross_entropy(across, target, at::Reduction::Mean, -100)
            .equal(at::cross_entropy_loss(across, target, {}, at::Reduction::Mean)));
}
