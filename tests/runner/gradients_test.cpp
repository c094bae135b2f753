#include "runner/model/gradients.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include <cmath>
#include <limits>
#include <vector>

#include "registry/kernels/total_norm.h"
#include "tests/doctest.h"

namespace trainrun {

TEST_CASE("the norm of gradients is that of all their numbers, whatever their sizes, on any number of threads") {
  at::manual_seed(1);
  for (const std::vector<std::vector<int64_t>>& sizes : std::vector<std::vector<std::vector<int64_t>>>{
           {{1}}, {{0}, {3}}, {{15}, {16}, {17}}, {{1023, 67}, {5}}, {{64, 3, 3, 3}, {64}, {300, 1000}}, {{0}}}) {
    Tensors gradients, exact;
    for (const auto& size : sizes) gradients.push_back(at::randn(size) * 0.01);
    if (gradients[0].dim() == 4) gradients[0] = gradients[0].contiguous(at::MemoryFormat::ChannelsLast);
    for (const at::Tensor& gradient : gradients) exact.push_back(gradient.to(at::kDouble).flatten());
    const double expected = at::linalg_vector_norm(at::cat(exact), 2).item<double>();
    const at::Tensor of_one_thread = [&] {
      const int threads = at::get_num_threads();
      at::set_num_threads(1);
      const at::Tensor norm = kernels::total_norm(gradients);
      at::set_num_threads(threads);
      return norm;
    }();
    for (const kernels::CpuPath path : kernels::available_cpu_paths()) {
      const at::Tensor norm = kernels::total_norm(gradients, path);
      CHECK((norm.scalar_type() == at::kFloat && norm.dim() == 0));
      CHECK(norm.item<double>() == doctest::Approx(expected).epsilon(2e-7));
      if (path == kernels::best_cpu_path()) CHECK(norm.equal(of_one_thread));
    }
    gradients.push_back(at::zeros({2}, at::kDouble));  // ATen's
    CHECK(kernels::total_norm(gradients).item<double>() == doctest::Approx(expected).epsilon(1e-6));
  }
  for (const double value : {std::numeric_limits<double>::infinity(), std::nan("")}) {
    const at::Tensor gradient = at::ones({100});
    gradient[70] = value;
    CHECK(!std::isfinite(kernels::total_norm({gradient, at::ones({3})}).item<double>()));
  }
}

TEST_CASE("clipping by value brings each element into its bounds and leaves the rest and what has no gradient") {
  const at::Tensor first = at::ones({4}).set_requires_grad(true);
  const at::Tensor second = at::ones({2}).set_requires_grad(true);
  const at::Tensor without = at::ones({1}).set_requires_grad(true);
  first.mutable_grad() = at::tensor({-3.0F, -0.25F, 0.5F, 7.0F});
  second.mutable_grad() = at::tensor({0.75F, -0.75F});
  clip_gradient_values({first, second, without}, 0.5);
  CHECK(at::equal(first.grad(), at::tensor({-0.5F, -0.25F, 0.5F, 0.5F})));
  CHECK(at::equal(second.grad(), at::tensor({0.5F, -0.5F})));
  CHECK(!without.grad().defined());
}

}  // namespace trainrun
