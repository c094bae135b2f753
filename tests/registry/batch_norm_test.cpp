#include "registry/kernels/batch_norm.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/batch_norm.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "tests/doctest.h"
#include "tests/support.h"
#include "tests/tensor_errors.h"
#include "tests/threads.h"

using namespace trainrun::kernels;
using trainrun::test::error_of;
using trainrun::test::rms;
using trainrun::test::Threads;

namespace {

struct BatchNormCase {
  std::vector<int64_t> sizes;
  bool is_added, is_affine = true, is_tracked = true, is_bfloat16 = false;
  double offset = 0;  // of the mean, in deviations
  bool has_relu = true;
};

std::string text_of_batch_norm(const BatchNormCase& c) {
  std::string text;
  for (const int64_t size : c.sizes) text += std::to_string(size) + " ";
  return text + (c.is_added ? "added " : "") + (c.is_affine ? "affine " : "") + (c.is_tracked ? "tracked " : "") +
         (c.is_bfloat16 ? "bfloat16 " : "") + (c.has_relu ? "relu " : "") + std::to_string(c.offset);
}

/// A batch, what is added to it, and the norm's tensors.
struct BatchNormTensorsOf {
  at::Tensor x, added;
  BatchNorm norm;

  /// Of which there are gradients.
  std::vector<at::Tensor> learned() const {
    std::vector<at::Tensor> tensors;
    for (const at::Tensor& tensor : {x, added, norm.weight, norm.bias}) {
      if (tensor.defined()) tensors.push_back(tensor);
    }
    return tensors;
  }
};

at::Tensor last(const at::Tensor& x) {
  return x.dim() == 4 ? x.contiguous(at::MemoryFormat::ChannelsLast) : x.contiguous();
}

BatchNormTensorsOf batch_tensors_of(const BatchNormCase& c) {
  const auto type = c.is_bfloat16 ? at::kBFloat16 : at::kFloat;
  const int64_t channels = c.sizes[1];
  BatchNormTensorsOf t;
  t.x = last((at::randn(c.sizes) * 2 + c.offset * 2).to(type)).detach().requires_grad_();
  if (c.is_added) t.added = last(at::randn(c.sizes).to(type)).detach().requires_grad_();
  if (c.is_affine) {
    t.norm.weight = (at::rand({channels}) + 0.5).detach().requires_grad_();
    t.norm.bias = at::randn({channels}).requires_grad_();
  }
  if (c.is_tracked) {
    t.norm.running_mean = at::randn({channels});
    t.norm.running_var = at::rand({channels}) + 0.5;
  }
  return t;
}

BatchNormTensorsOf in_float64(const BatchNormTensorsOf& t) {
  const auto wide = [](const at::Tensor& tensor, bool learned) {
    if (!tensor.defined()) return tensor;
    return tensor.detach().to(at::kDouble).clone().requires_grad_(learned);
  };
  BatchNormTensorsOf exact = t;
  exact.x = wide(t.x, true);
  exact.added = wide(t.added, true);
  exact.norm.weight = wide(t.norm.weight, true);
  exact.norm.bias = wide(t.norm.bias, true);
  exact.norm.running_mean = wide(t.norm.running_mean, false);
  exact.norm.running_var = wide(t.norm.running_var, false);
  return exact;
}

at::Tensor before_relu(const BatchNormTensorsOf& t) {
  const at::Tensor y = at::batch_norm(t.x, t.norm.weight, t.norm.bias, t.norm.running_mean, t.norm.running_var,
                                      t.norm.uses_batch, t.norm.momentum, t.norm.eps, false);
  return t.added.defined() ? y + t.added : y;
}
at::Tensor norm_by_definition(const BatchNormTensorsOf& t) { return at::relu(before_relu(t)); }

void check_batch_norm(const BatchNormCase& c, CpuPath path) {
  CAPTURE(text_of_batch_norm(c));
  CAPTURE(static_cast<int>(path));
  const BatchNormTensorsOf t = batch_tensors_of(c), exact = in_float64(t);
  const double bound = c.is_bfloat16 ? 5e-3 : 2e-6 * (1 + c.offset);
  const at::Tensor expected = c.has_relu ? norm_by_definition(exact) : before_relu(exact);
  const at::Tensor y = c.has_relu ? batch_norm_relu(t.x, t.added, t.norm, path) : batch_norm(t.x, t.norm, path);
  REQUIRE(y.sizes() == expected.sizes());
  CHECK(y.dtype() == t.x.dtype());
  CHECK(error_of(y, expected.detach()) < bound);
  if (c.is_tracked) {
    CHECK(error_of(t.norm.running_mean, exact.norm.running_mean) < 2e-6 * (1 + c.offset));
    CHECK(error_of(t.norm.running_var, exact.norm.running_var) < 2e-6 * (1 + c.offset));
  }
  const at::Tensor grad_y = last(at::randn(c.sizes).to(t.x.scalar_type()));
  const auto found = torch::autograd::grad({y}, t.learned(), {grad_y});
  // Where y is 0 but for rounding, either side is right: the ReLU lets through what it did here.
  const at::Tensor given = c.has_relu ? grad_y * (y.detach() > 0) : grad_y;
  const auto wanted = torch::autograd::grad({before_relu(exact)}, exact.learned(), {given.to(at::kDouble)});
  for (size_t i = 0; i < found.size(); ++i) {
    CAPTURE(i);
    CHECK(found[i].dtype() == t.learned()[i].dtype());
    // Sums over all rows of what is below and above 0 may come out near 0.
    const bool is_of_channels = wanted[i].dim() == 1;
    const int64_t rows = t.x.numel() / t.x.size(1);
    const double size = is_of_channels ? std::sqrt(static_cast<double>(rows)) : 0;
    CHECK(rms(found[i].to(at::kDouble) - wanted[i]) < 3 * bound * std::max(rms(wanted[i]), size));
  }
}

}  // namespace

TEST_CASE("batch norm with or without ReLU: chosen sizes equal float64 on every path") {
  for (const CpuPath path : available_cpu_paths()) {
    for (const bool added : {false, true}) {
      for (const bool is_bfloat16 : {false, true}) {
        check_batch_norm({{4, 64, 8, 8}, added, true, true, is_bfloat16}, path);
        check_batch_norm({{3, 5, 7, 9}, added, true, false, is_bfloat16}, path);
        check_batch_norm({{200, 33}, added, false, true, is_bfloat16}, path);
        check_batch_norm({{2, 1100, 3, 3}, added, false, false, is_bfloat16}, path);
        check_batch_norm({{8, 17, 20, 20}, added, true, true, is_bfloat16, 30}, path);
        if (!added) check_batch_norm({{8, 17, 20, 20}, added, true, true, is_bfloat16, 30, false}, path);
      }
    }
  }
}

TEST_CASE("batch norm with or without ReLU: random sizes equal float64 on every path and with any number of threads") {
  at::manual_seed(17);
  std::mt19937 random(17);  // NOLINT(bugprone-random-generator-seed): the same on every run
  const auto from = [&](int64_t least, int64_t most) {
    return least + static_cast<int64_t>(random() % static_cast<uint64_t>(most - least + 1));
  };
  for (int i = 0; i < trainrun::test::fuzz_rounds(60); ++i) {
    BatchNormCase c{
        {from(2, 6), from(1, 80), from(3, 24), from(3, 24)}, from(0, 1) == 1, from(0, 2) > 0, from(0, 2) > 0};
    if (from(0, 3) == 0) c.sizes = {from(20, 300), from(1, 150)};
    c.is_bfloat16 = from(0, 2) == 0;
    c.has_relu = c.is_added || from(0, 1) == 1;
    const Threads threads(static_cast<int>(from(1, 3)));
    for (const CpuPath path : available_cpu_paths()) check_batch_norm(c, path);
  }
}

TEST_CASE("batch norm with ReLU: running statistics are used, in evaluation, and not changed") {
  for (const bool added : {false, true}) {
    BatchNormTensorsOf t = batch_tensors_of({{4, 20, 6, 6}, added});
    t.norm.uses_batch = false;
    const at::Tensor mean = t.norm.running_mean.clone();
    const at::Tensor trained = batch_norm_relu(t.x, t.added, t.norm);
    const c10::NoGradGuard no_gradients;
    const at::Tensor y = batch_norm_relu(t.x, t.added, t.norm);
    CHECK(error_of(y, norm_by_definition(in_float64(t))) < 1e-6);
    CHECK(error_of(trained.detach(), y.to(at::kDouble)) < 1e-6);
    CHECK(t.norm.running_mean.equal(mean));
  }
}

TEST_CASE("batch norm with ReLU: other layouts and types are ATen's, bit for bit") {
  const BatchNormTensorsOf t = batch_tensors_of({{4, 20, 6, 6}, true});
  BatchNormTensorsOf plain = t;
  plain.x = t.x.detach().contiguous();
  plain.added = t.added.detach().contiguous();
  CHECK(batch_norm_relu(plain.x, plain.added, plain.norm).equal(norm_by_definition(plain)));
  const BatchNormTensorsOf wide = in_float64(t);
  CHECK(batch_norm_relu(wide.x, wide.added, wide.norm).equal(norm_by_definition(wide)));
  BatchNormTensorsOf turned = t;  // what is added may lie otherwise
  turned.added = plain.added;
  CHECK(error_of(batch_norm_relu(turned.x, turned.added, turned.norm), norm_by_definition(in_float64(turned))) < 2e-6);
}

TEST_CASE("batch norm with ReLU: what is not a number stays so, constants become the bias") {
  for (const CpuPath path : available_cpu_paths()) {
    const BatchNormTensorsOf t = batch_tensors_of({{4, 20, 6, 6}, false});
    const at::Tensor x = t.x.detach().clone(at::MemoryFormat::Preserve);
    x.select(1, 3).fill_(7);
    x.select(1, 5).select(0, 1).fill_(std::numeric_limits<double>::quiet_NaN());
    const at::Tensor y = batch_norm_relu(x, {}, t.norm, path);
    CHECK(y.select(1, 5).isnan().all().item<bool>());
    CHECK(y.isnan().sum().item<int64_t>() == y.select(1, 5).numel());
    const at::Tensor rest = (y.select(1, 3) - t.norm.bias[3].clamp_min(0)).abs();
    CHECK(rest.max().item<double>() < 1e-5);
  }
}

TEST_CASE("batch norm with or without ReLU: gradients of the second order are ATen's") {
  for (const bool added : {false, true}) {
    const BatchNormTensorsOf t = batch_tensors_of({{3, 4, 5, 5}, added, true, false});
    const auto second = [&](const at::Tensor& y) {
      const auto first = torch::autograd::grad({y.pow(3).sum()}, {t.x}, {}, true, true);
      return torch::autograd::grad({first[0].square().sum()}, {t.x, t.norm.weight});
    };
    const auto found = second(batch_norm_relu(t.x, t.added, t.norm)), expected = second(norm_by_definition(t));
    for (size_t i = 0; i < 2; ++i) CHECK(error_of(found[i], expected[i].to(at::kDouble)) < 1e-4);
    if (added) continue;
    const auto plain = second(batch_norm(t.x, t.norm)), of_plain = second(before_relu(t));
    for (size_t i = 0; i < 2; ++i) CHECK(error_of(plain[i], of_plain[i].to(at::kDouble)) < 1e-4);
  }
}
