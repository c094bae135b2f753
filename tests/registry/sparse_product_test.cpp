#include "registry/kernels/sparse_product.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/autograd.h>

#include <limits>
#include <random>

#include "registry/kernels/linear.h"
#include "tests/cpu_paths.h"
#include "tests/doctest.h"
#include "tests/own_products.h"
#include "tests/support.h"
#include "tests/tensor_errors.h"
#include "tests/threads.h"

using namespace trainrun::kernels;
using trainrun::test::error_of;
using trainrun::test::OwnProducts;
using trainrun::test::Threads;

namespace {

/// [rows, columns], of which `share` is not 0.
at::Tensor sparse_matrix(int64_t rows, int64_t columns, double share) {
  return at::randn({rows, columns}) * (at::rand({rows, columns}) < share);
}

}  // namespace

TEST_CASE("sparse products of any sizes equal float64's, on every path and with any number of threads") {
  std::mt19937 random(3);  // NOLINT(bugprone-random-generator-seed): the same on every run
  const auto from = [&](int64_t least, int64_t most) {
    return least + static_cast<int64_t>(random() % static_cast<uint64_t>(most - least + 1));
  };
  at::manual_seed(4);
  for (int i = 0; i < trainrun::test::fuzz_rounds(60); ++i) {
    const int64_t rows = i % 9 == 0 ? from(500, 1300) : from(1, 80), columns = from(1, 420);
    const int64_t depth = i % 7 == 0 ? from(1000, 2300) : from(1, 300);
    const double share = static_cast<double>(from(0, 10)) / 10;
    const bool is_turned = from(0, 1) == 1;
    const at::Tensor left = is_turned ? sparse_matrix(depth, rows, share).t() : sparse_matrix(rows, depth, share);
    const at::Tensor right = at::randn({depth, columns});
    const at::Tensor exact = at::mm(left.to(at::kDouble), right.to(at::kDouble));
    CAPTURE(rows);
    CAPTURE(depth);
    CAPTURE(columns);
    CAPTURE(share);
    CAPTURE(is_turned);
    const Threads threads(static_cast<int>(from(1, 3)));
    for (const CpuPath path : available_cpu_paths()) {
      CAPTURE(name_of(path));
      const at::Tensor place = at::full({rows, columns}, std::numeric_limits<float>::quiet_NaN());
      const at::Tensor found = sparse_product(left, right, from(0, 1) == 1 ? place : at::Tensor(), path);
      if (share == 0) {
        CHECK(found.eq(0).all().item<bool>());
      } else {
        CHECK(error_of(found, exact) < 1e-6);
      }
    }
  }
}

TEST_CASE("sparse products pass over zeros alone: a NaN and an infinity of the left factor come through") {
  at::Tensor left = sparse_matrix(20, 40, 0.3);
  left[3][7] = std::numeric_limits<float>::quiet_NaN();
  left[5][1] = std::numeric_limits<float>::infinity();
  const at::Tensor right = at::randn({40, 50});
  for (const CpuPath path : available_cpu_paths()) {
    const at::Tensor found = sparse_product(left, right, {}, path);
    CHECK(found[3].isnan().all().item<bool>());
    CHECK(found[5].isinf().all().item<bool>());
    CHECK(found.narrow(0, 6, 14).isfinite().all().item<bool>());
  }
}

TEST_CASE("many zeros are those of a ReLU's gradient, in products large enough, where products may be our own") {
  const at::Tensor few = sparse_matrix(64, 512, 0.3), many = sparse_matrix(64, 512, 0.7);
  CHECK_FALSE(has_many_zeros(few, 784));
  const OwnProducts own;
  CHECK(has_many_zeros(few, 784) == (best_cpu_path() == CpuPath::kAvx512));
  CHECK_FALSE(has_many_zeros(many, 784));
  CHECK_FALSE(has_many_zeros(few, 16));
  CHECK_FALSE(has_many_zeros(few.to(at::kDouble), 784));
  CHECK_FALSE(has_many_zeros(few.t(), 784));
}

TEST_CASE("the gradients of a Linear before a ReLU pass over its zeros, and equal float64's") {
  const OwnProducts own;
  at::manual_seed(6);
  for (const int64_t rows : {32, 100}) {  // one of few rows, and one that MKL computes forward
    CAPTURE(rows);
    const at::Tensor x = at::randn({rows, 784}).requires_grad_(), weight = at::randn({512, 784}).requires_grad_();
    const at::Tensor bias = at::full({512}, -20.0).requires_grad_();  // most outputs are 0
    const at::Tensor grad_y = at::randn({rows, 512});
    const auto gradients = [&](const at::Tensor& y, const std::vector<at::Tensor>& of) {
      return torch::autograd::grad({y}, of, {grad_y.to(y.scalar_type())});
    };
    std::vector<at::Tensor> wide;
    for (const at::Tensor& tensor : {x, weight, bias}) {
      wide.push_back(tensor.detach().to(at::kDouble).requires_grad_());
    }
    const at::Tensor exact_y = at::relu(wide[0].mm(wide[1].t()) + wide[2]);
    const at::Tensor y = activated_linear(x, {weight, bias, false, Activation::kRelu});
    CHECK(error_of(y, exact_y.detach()) < 1e-6);
    CHECK(has_many_zeros(y.detach(), 784) == (best_cpu_path() == CpuPath::kAvx512));
    const auto exact = gradients(exact_y, wide), found = gradients(y, {x, weight, bias});
    for (size_t i = 0; i < 3; ++i) {
      CAPTURE(i);
      CHECK(error_of(found[i], exact[i]) < 1e-6);
    }
  }
}
