#include "registry/kernels/silu_product.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/isnan.h>
#include <ATen/ops/linspace.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/tensor.h>
#include <torch/csrc/autograd/autograd.h>

#include <limits>
#include <vector>

#include "tests/doctest.h"
#include "tests/tensor_errors.h"
#include "tests/threads.h"

using namespace trainrun::kernels;
using trainrun::test::error_of;
using trainrun::test::Threads;

namespace {

using Tensors = std::vector<at::Tensor>;

at::Tensor by_aten(const at::Tensor& gate, const at::Tensor& up) { return at::silu(gate) * up; }

/// The output, and the gradients of both inputs where that of the output is `of`.
Tensors with_gradients(const auto& formula, const at::Tensor& gate, const at::Tensor& up, const at::Tensor& of) {
  const at::Tensor g = gate.detach().clone().requires_grad_(), u = up.detach().clone().requires_grad_();
  const at::Tensor y = formula(g, u);
  const Tensors gradients = torch::autograd::grad({y}, {g, u}, {of});
  return {y.detach(), gradients[0], gradients[1]};
}

Tensors wide(const at::Tensor& gate, const at::Tensor& up, const at::Tensor& of) {
  return with_gradients(by_aten, gate.to(at::kDouble), up.to(at::kDouble), of.to(at::kDouble));
}

}  // namespace

TEST_CASE("SiLU times another tensor is PyTorch's, forward and backward, on every path with any number left over") {
  at::manual_seed(3);
  for (const CpuPath path : available_cpu_paths()) {
    CAPTURE(static_cast<int>(path));
    const auto ours = [&](const at::Tensor& gate, const at::Tensor& up) { return silu_product(gate, up, path); };
    for (const int64_t count : {1, 7, 16, 33, 5000, 70001}) {
      for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
        const at::Tensor gate = (at::randn({count}) * 6).to(type), up = at::randn({count}).to(type);
        const at::Tensor of = at::randn({count}).to(type);
        REQUIRE(supports_silu_product(gate, up));
        const Tensors exact = wide(gate, up, of), theirs = with_gradients(by_aten, gate, up, of);
        const Tensors found = with_gradients(ours, gate, up, of);
        for (size_t i = 0; i < found.size(); ++i) {
          CHECK((found[i].scalar_type() == type));
          CHECK(error_of(found[i], exact[i]) <=
                (type == at::kFloat ? 5e-7 : 1.01 * error_of(theirs[i], exact[i]) + 1e-9));
        }
      }
    }
  }
}

TEST_CASE("SiLU times another tensor where SiLU is large, as good as zero, or not a number") {
  const float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  const at::Tensor gate =
      at::tensor({-1e30F, -500.0F, -100.0F, -87.5F, -20.0F, 0.0F, 20.0F, 100.0F, 1e30F, inf, nan, 1.0F});
  const at::Tensor up = at::tensor({1.0F, 1.0F, -1.0F, 1.0F, 2.0F, 3.0F, 1.0F, 1.0F, 1e5F, 1.0F, 1.0F, nan});
  for (const CpuPath path : available_cpu_paths()) {
    const auto ours = [&](const at::Tensor& g, const at::Tensor& u) { return silu_product(g, u, path); };
    const at::Tensor of = at::ones_like(gate);
    const Tensors found = with_gradients(ours, gate, up, of), theirs = with_gradients(by_aten, gate, up, of);
    for (const int64_t i : {0, 2}) CHECK(at::allclose(found[i], theirs[i], 1e-6, 1e-6, /*equal_nan=*/true));
    // At infinity PyTorch's gradient of gate is NaN, as inf * 0 is.
    CHECK(at::allclose(found[1], theirs[1], 1e-6, 1e-6, /*equal_nan=*/true));
  }
}

TEST_CASE("SiLU times another tensor gives the same bits for any number of threads") {
  at::manual_seed(4);
  const at::Tensor gate = at::randn({3, 40001}), up = at::randn({3, 40001}), of = at::randn({3, 40001});
  const auto ours = [](const at::Tensor& g, const at::Tensor& u) { return silu_product(g, u); };
  Tensors one;
  for (const int threads : {1, 2, 3}) {
    const Threads here(threads);
    const Tensors found = with_gradients(ours, gate, up, of);
    if (one.empty()) one = found;
    for (size_t i = 0; i < found.size(); ++i) CHECK(at::equal(found[i], one[i]));
  }
}

TEST_CASE("SiLU times another tensor leaves to PyTorch what it does not support") {
  const at::Tensor x = at::randn({4, 6});
  for (const auto& [gate, up] : std::vector<std::pair<at::Tensor, at::Tensor>>{
           {x.t(), x.t()}, {x, at::randn({6})}, {x.to(at::kDouble), x.to(at::kDouble)}, {x, x.to(at::kBFloat16)}}) {
    CHECK_FALSE(supports_silu_product(gate, up));
    CHECK(at::equal(silu_product(gate, up), by_aten(gate, up)));
  }
}

TEST_CASE("SiLU times another tensor has gradients of gradients") {
  const auto second = [](const auto& formula) {
    at::manual_seed(5);
    const at::Tensor gate = at::randn({20}).requires_grad_(), up = at::randn({20}).requires_grad_();
    const at::Tensor y = formula(gate, up);
    const Tensors first =
        torch::autograd::grad({y.square().sum()}, {gate, up}, {}, std::nullopt, /*create_graph=*/true);
    return torch::autograd::grad({first[0].square().sum() + first[1].square().sum()}, {gate, up});
  };
  const auto ours = second([](const at::Tensor& gate, const at::Tensor& up) { return silu_product(gate, up); });
  const auto theirs = second(by_aten);
  for (size_t i = 0; i < 2; ++i) CHECK(at::allclose(ours[i], theirs[i], 1e-5, 1e-5));
}
