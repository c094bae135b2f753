#include "registry/tensors/gradient_places.h"

#include <ATen/Context.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/full.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros_like.h>
#include <torch/csrc/autograd/autograd.h>

#include "registry/kernels/embedding.h"
#include "registry/kernels/linear.h"
#include "tests/doctest.h"
#include "tests/own_products.h"
#include "tests/tensor_errors.h"

using namespace trainrun;  // NOLINT(google-build-using-namespace)
using trainrun::test::error_of;
using trainrun::test::OwnProducts;

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

namespace {

/// A table that an Embedding and a Linear share, as language models have it; and the same by ATen alone.
struct TiedTable {
  at::Tensor table = at::randn({50, 64}).requires_grad_();
  at::Tensor indices = at::randint(50, {4, 40}, at::kLong);

  at::Tensor loss(bool is_ours, double scale) const {
    const at::Tensor rows = is_ours ? kernels::embedding(table, indices, 3) : at::embedding(table, indices, 3);
    const at::Tensor x = (rows * scale).sin();
    const at::Tensor y = is_ours ? kernels::linear(x, table, {}) : at::linear(x, table);
    return y.square().sum();
  }
  at::Tensor expected(std::initializer_list<double> scales) const {
    at::Tensor sum = at::zeros_like(table);
    for (const double scale : scales) sum += torch::autograd::grad({loss(false, scale)}, {table})[0];
    return sum;
  }
};

}  // namespace

TEST_CASE("a shared table's gradients are added up where they lie, over passes too") {
  const OwnProducts own;
  at::manual_seed(3);
  const TiedTable model;
  model.loss(true, 1).backward();
  CHECK(error_of(model.table.grad(), model.expected({1})) < 1e-6);
  const void* const memory = model.table.grad().data_ptr();
  model.loss(true, 0.5).backward();
  CHECK(model.table.grad().data_ptr() == memory);
  CHECK(error_of(model.table.grad(), model.expected({1, 0.5})) < 1e-6);
  CHECK_FALSE(model.table.grad().requires_grad());
}

TEST_CASE("gradients that are asked for leave the parameter's own alone") {
  const OwnProducts own;
  const TiedTable model;
  const at::Tensor asked = torch::autograd::grad({model.loss(true, 1)}, {model.table})[0];
  CHECK_FALSE(model.table.grad().defined());
  CHECK(error_of(asked, model.expected({1})) < 1e-6);
  model.table.mutable_grad() = at::full({50, 64}, 2.0);
  const at::Tensor again = torch::autograd::grad({model.loss(true, 1)}, {model.table})[0];
  CHECK(model.table.grad().eq(2).all().item<bool>());
  CHECK(error_of(again, asked) < 1e-6);
  const at::Tensor x = at::randn({40, 64}).requires_grad_();
  torch::autograd::backward({kernels::linear(x, model.table, {}).sum()}, {}, std::nullopt, false, {x});
  CHECK(model.table.grad().eq(2).all().item<bool>());
  CHECK(x.grad().defined());
}

TEST_CASE("a hook of a parameter sees its whole gradient") {
  const OwnProducts own;
  const TiedTable model;
  int calls = 0;
  at::Tensor seen;
  model.table.register_hook([&](const at::Tensor& gradient) { ++calls, seen = gradient.clone(); });
  model.loss(true, 1).backward();
  model.loss(true, 1).backward();
  CHECK(calls == 2);
  CHECK(error_of(seen, model.expected({1})) < 1e-6);
  CHECK(error_of(model.table.grad(), model.expected({1, 1})) < 1e-6);
}

TEST_CASE("a gradient of another type or order of memory is added to by autograd") {
  const OwnProducts own;
  const TiedTable model;
  model.table.mutable_grad() = at::ones({64, 50}).t();
  model.loss(true, 1).backward();
  CHECK(error_of(model.table.grad(), model.expected({1}) + 1) < 1e-6);
}

TEST_CASE("an embedding's second derivatives are ATen's") {
  const OwnProducts own;
  const TiedTable model;
  const auto twice = [&](bool is_ours) {
    const auto first = torch::autograd::grad({model.loss(is_ours, 1)}, {model.table}, {}, std::nullopt, true);
    return torch::autograd::grad({first[0].square().sum()}, {model.table})[0];
  };
  CHECK(error_of(twice(true), twice(false)) < 1e-5);
}
