#include "registry/kernels/bfloat16_product.h"

#include <ATen/Context.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>

#include <limits>
#include <random>

#include "tests/doctest.h"
#include "tests/support.h"
#include "tests/tensor_errors.h"
#include "tests/threads.h"

using namespace trainrun::kernels;
using trainrun::test::error_of;
using trainrun::test::Threads;

namespace {

bool is_there() {
  if (has_bfloat16_products()) return true;
  MESSAGE("skipped: this processor does not multiply bfloat16");
  return false;
}

at::Tensor matrix(int64_t rows, int64_t columns, bool is_transposed, at::ScalarType type) {
  return is_transposed ? at::randn({columns, rows}).to(type).t() : at::randn({rows, columns}).to(type);
}

struct Factors {
  at::Tensor a, b, bias;
};

at::Tensor exact_product(const Factors& f) {
  const auto rounded = [](const at::Tensor& x) { return x.to(at::kBFloat16).to(at::kDouble); };
  const at::Tensor product = rounded(f.a).mm(rounded(f.b));
  return f.bias.defined() ? product + rounded(f.bias) : product;
}

void check_product(const Factors& f) {
  REQUIRE(supports_bfloat16_product(f.a, f.b));
  const at::Tensor exact = exact_product(f);
  const at::Tensor wide = bfloat16_product(f.a, f.b, at::kFloat, f.bias);
  const at::Tensor narrow = bfloat16_product(f.a, f.b, at::kBFloat16, f.bias);
  REQUIRE(wide.sizes() == exact.sizes());
  CHECK(wide.dtype() == at::kFloat);
  CHECK(narrow.dtype() == at::kBFloat16);
  CHECK(error_of(wide, exact) < 1e-6);
  CHECK(narrow.equal(wide.to(at::kBFloat16)));
  const Threads threads(3);
  CHECK(bfloat16_product(f.a, f.b, at::kFloat, f.bias).equal(wide));
}

}  // namespace

TEST_CASE("products of bfloat16 equal float64's for any sizes, transposed or not") {
  if (!is_there()) return;
  at::manual_seed(6);
  std::mt19937 random(6);  // NOLINT(bugprone-random-generator-seed): the same on every run
  const auto from = [&](int64_t least, int64_t most) {
    return least + static_cast<int64_t>(random() % static_cast<uint64_t>(most - least + 1));
  };
  for (int i = 0; i < trainrun::test::fuzz_rounds(150); ++i) {
    const bool a_turned = from(0, 1) == 1, b_turned = from(0, 1) == 1;
    const int64_t rows = from(32, i % 10 == 0 ? 700 : 120), columns = from(16, i % 10 == 1 ? 900 : 200);
    const int64_t depth = from(16, i % 10 == 2 ? 3000 : 300);
    CAPTURE(rows);
    CAPTURE(depth);
    CAPTURE(columns);
    CAPTURE(a_turned);
    CAPTURE(b_turned);
    const at::ScalarType type = from(0, 1) == 1 ? at::kFloat : at::kBFloat16;
    CAPTURE(static_cast<int>(type));
    check_product({matrix(rows, depth, a_turned, at::kBFloat16), matrix(depth, columns, b_turned, type),
                   from(0, 1) == 1 ? at::randn({columns}) : at::Tensor()});
  }
}

TEST_CASE("products of bfloat16 of many rows whose depth comes in pieces equal float64's") {
  if (!is_there()) return;
  for (const int64_t depth : {1024, 1025, 1026, 2049, 4097}) {
    for (const bool a_turned : {false, true}) {
      CAPTURE(depth);
      CAPTURE(a_turned);
      check_product({matrix(2100, depth, a_turned, at::kBFloat16), matrix(depth, 33, a_turned, at::kFloat), {}});
    }
  }
}

TEST_CASE("products of bfloat16 keep infinities and NaN where they belong") {
  if (!is_there()) return;
  at::Tensor a = at::randn({64, 32}).to(at::kBFloat16);
  const at::Tensor b = at::randn({32, 48});
  a[3][5] = std::numeric_limits<float>::infinity();
  a[40][31] = std::numeric_limits<float>::quiet_NaN();
  const at::Tensor found = bfloat16_product(a, b, at::kFloat), expected = exact_product({a, b, {}});
  CHECK(found.isfinite().equal(expected.isfinite()));
  CHECK(found.isnan().equal(expected.isnan()));
}

TEST_CASE("products of bfloat16 are left to ATen where they do not pay or cannot be read") {
  if (!is_there()) return;
  const auto half = [](int64_t rows, int64_t columns) { return at::zeros({rows, columns}, at::kBFloat16); };
  CHECK(supports_bfloat16_product(half(64, 32), half(32, 48)));
  CHECK_FALSE(supports_bfloat16_product(half(8, 32), half(32, 48)));
  CHECK(supports_bfloat16_product(half(64, 33), half(33, 48)));
  CHECK(supports_bfloat16_product(half(33, 64).t(), half(33, 48)));
  CHECK_FALSE(supports_bfloat16_product(half(64, 64).slice(1, 0, 32), half(32, 48)));
  CHECK_FALSE(supports_bfloat16_product(half(64, 32).to(at::kFloat), half(32, 48)));
  CHECK_FALSE(supports_bfloat16_product(half(64, 32), half(32, 48).to(at::kDouble)));
  CHECK_FALSE(supports_bfloat16_product(half(2, 64).view({2, 2, 32}), half(32, 48)));
}
