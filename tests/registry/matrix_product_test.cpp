#include "registry/kernels/matrix_product.h"

#include <ATen/Context.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>

#include <limits>
#include <random>

#include "registry/kernels/cpu_path.h"
#include "tests/doctest.h"
#include "tests/support.h"
#include "tests/tensor_errors.h"
#include "tests/threads.h"

using namespace trainrun::kernels;
using trainrun::test::error_of;
using trainrun::test::Threads;

namespace {

bool is_there(at::ScalarType type) {
  if (type == at::kFloat ? best_cpu_path() == CpuPath::kAvx512 : has_bfloat16_products()) return true;
  MESSAGE("skipped: this processor has no such products");
  return false;
}

at::Tensor random_matrix(int64_t rows, int64_t columns, bool is_transposed, at::ScalarType type) {
  return is_transposed ? at::randn({columns, rows}).to(type).t() : at::randn({rows, columns}).to(type);
}

struct Factors {
  at::Tensor a, b, bias;
};

at::Tensor exact_product(const Factors& f) {
  const auto rounded = [&](const at::Tensor& x) { return x.to(f.a.scalar_type()).to(at::kDouble); };
  const at::Tensor product = rounded(f.a).mm(rounded(f.b));
  return f.bias.defined() ? product + rounded(f.bias) : product;
}

/// In float32, in bfloat16 where a is of it, by other threads, and in a place.
void check_product(const Factors& f) {
  REQUIRE(supports_matrix_product(f.a, f.b));
  const at::Tensor exact = exact_product(f);
  const at::Tensor wide = matrix_product(f.a, f.b, at::kFloat, f.bias);
  REQUIRE(wide.sizes() == exact.sizes());
  CHECK(wide.dtype() == at::kFloat);
  CHECK(error_of(wide, exact) < 1e-6);
  if (f.a.scalar_type() == at::kBFloat16 && f.a.size(0) * f.b.size(1) > (1 << 16)) {
    const at::Tensor narrow = matrix_product(f.a, f.b, at::kBFloat16, f.bias);
    CHECK(narrow.dtype() == at::kBFloat16);
    CHECK(narrow.equal(wide.to(at::kBFloat16)));
  }
  for (const int count : {1, 3}) {
    const Threads threads(count);
    CHECK(matrix_product(f.a, f.b, at::kFloat, f.bias).equal(wide));
    const at::Tensor place = at::empty_like(wide);
    CHECK(matrix_product(f.a, f.b, at::kFloat, f.bias, place).is_same(place));
    CHECK(place.equal(wide));
  }
}

}  // namespace

TEST_CASE("products of matrices equal float64's for any sizes, transposed or not") {
  at::manual_seed(6);
  std::mt19937 random(6);  // NOLINT(bugprone-random-generator-seed): the same on every run
  const auto from = [&](int64_t least, int64_t most) {
    return least + static_cast<int64_t>(random() % static_cast<uint64_t>(most - least + 1));
  };
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    if (!is_there(type)) continue;
    for (int i = 0; i < trainrun::test::fuzz_rounds(150); ++i) {
      const bool a_turned = from(0, 1) == 1, b_turned = from(0, 1) == 1;
      const int64_t rows = from(32, i % 10 == 0 ? 1500 : 120), columns = from(1, i % 10 == 1 ? 60 : 13) * from(8, 16);
      const int64_t depth = from(16, i % 10 == 2 ? 5000 : 600);
      CAPTURE(rows);
      CAPTURE(depth);
      CAPTURE(columns);
      CAPTURE(a_turned);
      CAPTURE(b_turned);
      if (columns < 16) continue;
      const at::ScalarType other = from(0, 1) == 1 ? at::kFloat : type;
      CAPTURE(static_cast<int>(type));
      CAPTURE(static_cast<int>(other));
      check_product({random_matrix(rows, depth, a_turned, type), random_matrix(depth, columns, b_turned, other),
                     from(0, 1) == 1 ? at::randn({columns}) : at::Tensor()});
    }
  }
}

TEST_CASE("a deep product of few sums is that of its slices") {
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    if (!is_there(type)) continue;
    for (const int64_t depth : {4095, 8192, 8193, 20000}) {
      for (const bool is_turned : {false, true}) {
        CAPTURE(depth);
        check_product({random_matrix(64, depth, is_turned, type), random_matrix(depth, 96, !is_turned, type), {}});
        check_product(
            {random_matrix(40, depth, is_turned, type), random_matrix(depth, 33, is_turned, type), at::randn({33})});
      }
    }
  }
}

TEST_CASE("products of many rows whose depth comes in pieces equal float64's") {
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    if (!is_there(type)) continue;
    for (const int64_t depth : {512, 1024, 1025, 1026, 2049, 4097}) {
      for (const bool a_turned : {false, true}) {
        CAPTURE(depth);
        CAPTURE(a_turned);
        check_product({random_matrix(2100, depth, a_turned, type), random_matrix(depth, 33, a_turned, at::kFloat), {}});
        check_product({random_matrix(500, depth, a_turned, type), random_matrix(depth, 512, false, at::kFloat), {}});
      }
    }
  }
}

TEST_CASE("products of bfloat16 keep infinities and NaN where they belong") {
  if (!is_there(at::kBFloat16)) return;
  at::Tensor a = at::randn({64, 32}).to(at::kBFloat16);
  const at::Tensor b = at::randn({32, 48});
  a[3][5] = std::numeric_limits<float>::infinity();
  a[40][31] = std::numeric_limits<float>::quiet_NaN();
  const at::Tensor found = matrix_product(a, b, at::kFloat), expected = exact_product({a, b, {}});
  CHECK(found.isfinite().equal(expected.isfinite()));
  CHECK(found.isnan().equal(expected.isnan()));
}

TEST_CASE("products of bfloat16 are left to ATen where they do not pay or cannot be read") {
  if (!is_there(at::kBFloat16)) return;
  const auto half = [](int64_t rows, int64_t columns) { return at::zeros({rows, columns}, at::kBFloat16); };
  CHECK(supports_matrix_product(half(64, 32), half(32, 48)));
  CHECK_FALSE(supports_matrix_product(half(8, 32), half(32, 48)));
  CHECK(supports_matrix_product(half(64, 33), half(33, 48)));
  CHECK(supports_matrix_product(half(33, 64).t(), half(33, 48)));
  CHECK_FALSE(supports_matrix_product(half(64, 64).slice(1, 0, 32), half(32, 48)));
  CHECK_FALSE(supports_matrix_product(half(64, 32).to(at::kFloat), half(32, 48)));
  CHECK(supports_matrix_product(half(64, 32).to(at::kFloat), half(32, 48).to(at::kFloat)));
  CHECK_FALSE(supports_matrix_product(half(64, 32), half(32, 48).to(at::kDouble)));
  CHECK_FALSE(supports_matrix_product(half(2, 64).view({2, 2, 32}), half(32, 48)));
}
