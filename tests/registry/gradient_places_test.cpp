#include "registry/tensors/gradient_places.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/full.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/randn.h>
#include <torch/csrc/autograd/autograd.h>

#include "registry/kernels/linear.h"
#include "tests/doctest.h"
#include "tests/tensor_errors.h"

using namespace trainrun;  // NOLINT(google-build-using-namespace)
using trainrun::test::error_of;

namespace {

constexpr double kNobodys = 7;  // in the memory, before a gradient is written there

struct LinearWithPlace {
  at::Tensor x, weight, place;
  GradientPlaces places;

  explicit LinearWithPlace(int64_t rows)
      : x(at::randn({rows, 128})), weight(at::randn({32, 128}).requires_grad_()), place(at::full({32, 128}, kNobodys)) {
    places.add(weight, place);
  }
  bool is_in_place() const { return weight.grad().is_alias_of(place); }
  at::Tensor expected() const { return at::full({x.size(0), 32}, 1.0).t().mm(x); }
  void backward() const { kernels::linear(x, weight, {}).sum().backward(); }
};

}  // namespace

TEST_CASE("a Linear's gradient is written where it is wanted, without a copy") {
  for (const int64_t rows : {32, 200}) {  // with AVX-512 few rows have a product of their own
    CAPTURE(rows);
    const LinearWithPlace model(rows);
    model.backward();
    CHECK(model.is_in_place());
    CHECK(error_of(model.weight.grad(), model.expected()) < 1e-6);
  }
}

TEST_CASE("a gradient that is there is added to, wherever it lies") {
  const LinearWithPlace model(32);
  model.backward();
  model.backward();
  CHECK(model.is_in_place());
  CHECK(error_of(model.weight.grad(), model.expected() * 2) < 1e-6);

  model.weight.mutable_grad() = at::full({32, 128}, 1.0);
  model.backward();
  CHECK_FALSE(model.is_in_place());
  CHECK(error_of(model.weight.grad(), model.expected() + 1) < 1e-6);
}

TEST_CASE("a weight that is read twice gets the sum of both gradients") {
  const LinearWithPlace model(32);
  const at::Tensor twice = kernels::linear(model.x, model.weight, {}) + kernels::linear(model.x * 3, model.weight, {});
  twice.sum().backward();
  CHECK(error_of(model.weight.grad(), model.expected() * 4) < 1e-6);
}

TEST_CASE("the memory can be taken once in a backward pass, and not when it is gone") {
  LinearWithPlace model(32);
  const at::Tensor other = at::randn({2});
  CHECK_FALSE(take_gradient_place(other).defined());
  CHECK(take_gradient_place(model.weight).is_alias_of(model.place));
  CHECK_FALSE(take_gradient_place(model.weight).defined());
  model.places.release();
  CHECK(take_gradient_place(model.weight).defined());
  {
    GradientPlaces short_lived;
    short_lived.add(other, at::randn({2}));
    CHECK(take_gradient_place(other).defined());
  }
  CHECK_FALSE(take_gradient_place(other).defined());
}

TEST_CASE("gradients of gradients do not use the memory") {
  const LinearWithPlace model(32);
  const at::Tensor loss = kernels::linear(model.x, model.weight, {}).square().sum();
  const auto first = torch::autograd::grad({loss}, {model.weight}, {}, std::nullopt, /*create_graph=*/true);
  CHECK_FALSE(first[0].is_alias_of(model.place));
  CHECK(model.place.eq(kNobodys).all().item<bool>());
}
