#include "registry/kernels/half_product.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/conv2d.h>
#include <ATen/ops/full.h>
#include <ATen/ops/randn.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>

#include "tests/doctest.h"
#include "tests/support.h"
#include "tests/tensor_errors.h"

using namespace trainrun::kernels;
using trainrun::test::error_of;

namespace {

constexpr at::ScalarType kHalves[] = {at::kBFloat16, at::kHalf};

at::Tensor matrix(int64_t rows, int64_t columns, bool is_transposed, at::ScalarType type) {
  return is_transposed ? at::randn({columns, rows}).to(type).t() : at::randn({rows, columns}).to(type);
}

double step_of(at::ScalarType type) { return type == at::kBFloat16 ? 1.0 / 256 : 1.0 / 2048; }

at::Tensor exact(const at::Tensor& x) { return x.detach().to(at::kDouble); }

/// Whether each number of a b is that of float64, summed in float32 and then rounded once to the nearest of its type.
bool is_rounded_once(const at::Tensor& product, const at::Tensor& a, const at::Tensor& b) {
  const at::Tensor expected = exact(a).mm(exact(b));
  const at::Tensor of_sums = exact(a).abs().mm(exact(b).abs()) * std::ldexp(static_cast<double>(a.size(1)), -23);
  const at::Tensor most = expected.abs() * step_of(product.scalar_type()) + of_sums;
  return ((exact(product) - expected).abs() <= most).all().item<bool>();
}

}  // namespace

TEST_CASE("products of halves are those of the same numbers in float64, rounded once") {
  CHECK(multiply_halves_in_float32().empty());
  struct Sizes {
    int64_t rows, depth, columns;
  };
  for (const at::ScalarType type : kHalves) {
    for (const Sizes& sizes : {Sizes{3, 5, 7},
                               {64, 64, 64},
                               {1, 700, 300},
                               {300, 700, 1},
                               {33, 129, 65},
                               {1100, 40, 1060},
                               {40, 2100, 30}}) {
      for (const bool of_a : {false, true}) {
        for (const bool of_b : {false, true}) {
          const at::Tensor a = matrix(sizes.rows, sizes.depth, of_a, type);
          const at::Tensor b = matrix(sizes.depth, sizes.columns, of_b, type);
          CAPTURE(type);
          CAPTURE(sizes.rows);
          CAPTURE(sizes.depth);
          CHECK(is_rounded_once(a.mm(b), a, b));
        }
      }
    }
  }
}

TEST_CASE("what is added to a product of halves is scaled, and its gaps stay as they are") {
  CHECK(multiply_halves_in_float32().empty());
  for (const at::ScalarType type : kHalves) {
    const at::Tensor a = matrix(50, 60, false, type), b = matrix(60, 70, true, type), c = matrix(50, 70, false, type);
    const at::Tensor expected = 0.25 * exact(c) - 1.5 * exact(a).mm(exact(b));
    CHECK(error_of(at::addmm(c, a, b, 0.25, -1.5), expected) <= 0.75 * step_of(type));
    const at::Tensor wide = at::full({50, 90}, 7.0).to(type);
    at::Tensor place = wide.narrow(1, 10, 70);
    place.copy_(c);
    place.addmm_(a, b, 0.25, -1.5);
    CHECK(error_of(place, expected) <= 0.75 * step_of(type));
    CHECK((wide.narrow(1, 0, 10) == 7).all().item<bool>());
    CHECK((wide.narrow(1, 80, 10) == 7).all().item<bool>());
  }
}

TEST_CASE("numbers that are not finite stay so") {
  CHECK(multiply_halves_in_float32().empty());
  const at::Tensor a = at::full({64, 64}, 200.0).to(at::kHalf);
  CHECK(a.mm(a).isinf().all().item<bool>());  // 64 * 40,000 is more than float16 holds
  const at::Tensor b = at::full({64, 64}, std::numeric_limits<double>::quiet_NaN()).to(at::kBFloat16);
  CHECK(b.mm(b).isnan().all().item<bool>());
}

TEST_CASE("convolutions and batches of products, with gradients") {
  CHECK(multiply_halves_in_float32().empty());
  for (const at::ScalarType type : kHalves) {
    const at::Tensor x = at::randn({2, 8, 12, 11}).to(type).requires_grad_();
    const at::Tensor w = at::randn({6, 8, 3, 3}).to(type).requires_grad_();
    const at::Tensor q = at::randn({3, 40, 16}).to(type).requires_grad_();
    const auto with = [&](bool is_exact) {
      const auto of = [&](const at::Tensor& t) { return is_exact ? exact(t).requires_grad_() : t; };
      const at::Tensor own_x = of(x), own_w = of(w), own_q = of(q);
      const at::Tensor y = at::conv2d(own_x, own_w, {}, 1, 1), z = at::bmm(own_q, own_q.transpose(1, 2));
      torch::autograd::variable_list made = torch::autograd::grad({y.sum(), z.sum()}, {own_x, own_w, own_q});
      made.push_back(y);
      made.push_back(z);
      return made;
    };
    const auto own = with(false), expected = with(true);
    for (size_t i = 0; i < own.size(); ++i) {
      CAPTURE(i);
      CHECK(error_of(own[i].detach(), expected[i].detach()) <= 4 * step_of(type));  // sums over images are rounded, too
    }
  }
}

TEST_CASE("where ATen has no instructions for halves, they are multiplied here") {
  CHECK(multiply_halves_in_float32().empty());
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f")) {
    MESSAGE("skipped: ATen may multiply halves by AVX-512");
    return;
  }
#endif
  const int64_t before = num_products_of_halves();
  for (const at::ScalarType type : kHalves) {
    const at::Tensor a = matrix(40, 40, false, type);
    a.mm(a);
  }
  CHECK(num_products_of_halves() == before + 2);
}
