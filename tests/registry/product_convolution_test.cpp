#include "registry/kernels/product_convolution.h"

#include <ATen/TensorOperators.h>
#include <ATen/autocast_mode.h>
#include <ATen/ops/conv2d.h>
#include <ATen/ops/convolution_backward.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/randn.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/autograd.h>

#include <array>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "registry/kernels/convolution.h"
#include "registry/kernels/cpu_path.h"
#include "registry/kernels/matrix_product.h"
#include "tests/doctest.h"
#include "tests/own_products.h"
#include "tests/support.h"
#include "tests/tensor_errors.h"

using namespace trainrun::kernels;
using trainrun::test::error_of;
using trainrun::test::OwnProducts;

namespace {

constexpr auto kPointsLast = at::MemoryFormat::ChannelsLast;

using Tensors = std::vector<at::Tensor>;

/// y, and the gradients of x, the weight and the bias.
template <class Conv>
Tensors pass_of_points(const Conv& conv, const Tensors& inputs, const at::Tensor& grad_y) {
  Tensors learned;
  for (const at::Tensor& input : inputs) learned.push_back(input.detach().requires_grad_());
  const at::Tensor y = conv(learned[0], learned[1], learned[2]);
  const auto gradients = torch::autograd::grad({y}, learned, {grad_y});
  return {y.detach(), gradients[0], gradients[1], gradients[2]};
}

Tensors in_float64(const Tensors& tensors) {
  Tensors wide;
  for (const at::Tensor& tensor : tensors) wide.push_back(tensor.to(at::kDouble));
  return wide;
}

}  // namespace

TEST_CASE("a convolution of 1x1 as a product equals float64's convolution, for any sizes and strides") {
  std::mt19937 random(5);  // NOLINT(bugprone-random-generator-seed): the same sizes each time
  at::manual_seed(5);
  const auto number = [&](int64_t least, int64_t most) {
    return std::uniform_int_distribution<int64_t>(least, most)(random);
  };
  for (int i = 0; i < trainrun::test::fuzz_rounds(60); ++i) {
    const std::optional<OwnProducts> products = i % 2 == 0 ? std::optional<OwnProducts>(std::in_place) : std::nullopt;
    const int64_t channels = number(2, 70), filters = number(1, 130);
    const std::array<int64_t, 2> stride = {number(1, 3), number(1, 3)};
    const Tensors inputs = {at::randn({number(1, 6), channels, number(2, 15), number(1, 15)}).contiguous(kPointsLast),
                            at::randn({filters, channels, 1, 1}), at::randn({filters})};
    CAPTURE(inputs[0].numel());
    CAPTURE(filters);
    const auto direct = [&](const auto& x, const auto& w, const auto& b) { return at::conv2d(x, w, b, stride); };
    const auto own = [&](const auto& x, const auto& w, const auto& b) { return point_conv2d(x, w, b, stride); };
    const at::Tensor grad_y = at::randn_like(direct(inputs[0], inputs[1], inputs[2]));
    const Tensors exact = pass_of_points(direct, in_float64(inputs), grad_y.to(at::kDouble));
    const Tensors found = pass_of_points(own, inputs, grad_y);
    for (size_t k = 0; k < exact.size(); ++k) {
      REQUIRE(found[k].sizes() == exact[k].sizes());
      CHECK(error_of(found[k], exact[k]) < 1e-5);
    }
    CHECK(found[0].is_contiguous(kPointsLast));
    CHECK(found[1].is_contiguous(kPointsLast));
    CHECK(found[2].is_contiguous());
    const c10::NoGradGuard no_grad;
    CHECK(at::equal(point_conv2d(inputs[0], inputs[1], inputs[2], stride), found[0]));
    CHECK(error_of(point_conv2d(inputs[0], inputs[1], {}, stride),
                   at::conv2d(inputs[0].to(at::kDouble), inputs[1].to(at::kDouble), {}, stride)) < 1e-5);
  }
}

TEST_CASE("a convolution of 1x1 as a product has derivatives of second order, which are conv2d's") {
  const at::Tensor x = at::randn({2, 8, 5, 6}).contiguous(kPointsLast).requires_grad_();
  const at::Tensor w = at::randn({7, 8, 1, 1}).requires_grad_();
  const auto penalty = [&](const at::Tensor& y) {
    const at::Tensor gradient = torch::autograd::grad({y.square().sum()}, {x}, {}, true, true)[0];
    return torch::autograd::grad({gradient.square().sum()}, {w})[0];
  };
  const at::Tensor ours = penalty(point_conv2d(x, w, {}, {2, 1}));
  CHECK(error_of(ours, penalty(at::conv2d(x, w, {}, {2, 1})).to(at::kDouble)) < 1e-5);
}

TEST_CASE(
    "a convolution of 1x1 that passes on what it reads has the gradients of one beside another reader, bit for bit") {
  at::manual_seed(7);
  for (const int64_t step : {1, 2}) {
    for (const bool is_own : {false, true}) {
      const std::optional<OwnProducts> products = is_own ? std::optional<OwnProducts>(std::in_place) : std::nullopt;
      const std::array<int64_t, 2> stride = {step, step};
      const at::Tensor x = at::randn({3, 48, 8, 8}).contiguous(kPointsLast).requires_grad_();
      const at::Tensor w = at::randn({32, 48, 1, 1}).requires_grad_(), b = at::randn({32}).requires_grad_();
      const at::Tensor plain = point_conv2d(x, w, b, stride);
      const auto [y, same] = point_conv2d_passing_on(x, w, b, stride);
      CHECK(y.equal(plain));
      CHECK(same.equal(x));
      const at::Tensor grad_y = at::randn_like(y), other = at::randn_like(x), before = other.clone();
      const auto gradients = [&](const Tensors& of, const Tensors& given) {
        return torch::autograd::grad(of, {x, w, b}, given, /*retain_graph=*/true, /*create_graph=*/false,
                                     /*allow_unused=*/true);
      };
      const Tensors wanted = gradients({plain, x.tanh()}, {grad_y, other});
      const Tensors found = gradients({y, same.tanh()}, {grad_y, other});
      for (size_t i = 0; i < wanted.size(); ++i) CHECK(found[i].equal(wanted[i]));
      CHECK(gradients({y}, {grad_y})[0].equal(gradients({plain}, {grad_y})[0]));
      CHECK(gradients({same.tanh()}, {other})[0].equal(gradients({x.tanh()}, {other})[0]));
      // A gradient that somebody else holds is not written to.
      CHECK(gradients({y, same}, {grad_y, other})[0].equal(gradients({plain}, {grad_y})[0] + other));
      CHECK(other.equal(before));
      const auto twice = [&](const Tensors& of) {
        const auto once = torch::autograd::grad(of, {x}, {grad_y, other}, std::nullopt, /*create_graph=*/true);
        return torch::autograd::grad({once[0].square().sum()}, {x})[0];
      };
      CHECK(twice({y, same.tanh()}).allclose(twice({plain, x.tanh()}), 1e-4, 1e-4));
    }
  }
}

TEST_CASE("the gradient of what a convolution of 1x1 passes on is added to where it is") {
  const OwnProducts own;
  const at::Tensor x = at::randn({3, 48, 8, 8}).contiguous(kPointsLast).requires_grad_();
  const at::Tensor w = at::randn({32, 48, 1, 1}).requires_grad_();
  const auto [y, same] = point_conv2d_passing_on(x, w, {}, {1, 1});
  const void* other = nullptr;
  same.register_hook([&](const at::Tensor& gradient) { other = gradient.const_data_ptr(); });
  const auto found = torch::autograd::grad({y, same.tanh()}, {x}, {at::randn_like(y), at::randn_like(x)});
  CHECK((found[0].const_data_ptr() == other) == supports_matrix_product(at::randn({192, 32}), at::randn({32, 48})));
}

TEST_CASE("what a convolution of 1x1 passes on is what it read: without gradients, of its type, and changed with it") {
  const at::Tensor w = at::randn({32, 48, 1, 1}).requires_grad_();
  const at::Tensor image = at::randn({3, 48, 4, 4}).contiguous(kPointsLast);
  CHECK(point_conv2d_passing_on(image, w, {}, {1, 1})[1].is_same(image));
  const at::Tensor x = at::randn({3, 48, 4, 4}).contiguous(kPointsLast).requires_grad_();
  at::autocast::set_autocast_enabled(at::kCPU, true);
  const at::Tensor same = point_conv2d_passing_on(x, w, {}, {1, 1})[1];
  at::autocast::set_autocast_enabled(at::kCPU, false);
  at::autocast::clear_cache();
  CHECK((same.scalar_type() == at::kFloat));
  at::Tensor changed = x * 2;
  const at::Tensor root = point_conv2d_passing_on(changed, w, {}, {1, 1})[1].square().sum();
  changed.add_(1);
  CHECK_THROWS_WITH_AS(torch::autograd::grad({root}, {x}), doctest::Contains("modified by an inplace operation"),
                       c10::Error);
}

TEST_CASE("only the gradients that are wanted are computed of a convolution of 1x1") {
  const at::Tensor x = at::randn({2, 8, 5, 6}).contiguous(kPointsLast), w = at::randn({7, 8, 1, 1});
  const at::Tensor learned = x.detach().requires_grad_();
  const at::Tensor of_x = torch::autograd::grad({point_conv2d(learned, w, {}, {1, 1}).sum()}, {learned})[0];
  CHECK(error_of(of_x, w.to(at::kDouble).sum(0).view({1, 8, 1, 1}).expand_as(x)) < 1e-5);
  const at::Tensor trained = w.detach().requires_grad_();
  const at::Tensor of_w = torch::autograd::grad({point_conv2d(x, trained, {}, {1, 1}).sum()}, {trained})[0];
  CHECK(error_of(of_w, x.to(at::kDouble).sum({0, 2, 3}).view({1, 8, 1, 1}).expand_as(w)) < 1e-5);
}

TEST_CASE("what is no product of matrices over points, ATen's conv2d computes, bit for bit") {
  const auto same = [](const at::Tensor& x, const at::Tensor& w) {
    const at::Tensor expected = at::conv2d(x, w, {}, {2, 2}), found = point_conv2d(x, w, {}, {2, 2});
    return at::equal(found, expected) && found.strides() == expected.strides();
  };
  CHECK(same(at::randn({4, 16, 6, 6}), at::randn({8, 16, 1, 1})));  // channels first
  CHECK(same(at::randn({4, 16, 6, 6}).contiguous(kPointsLast), at::randn({8, 16, 3, 3})));
  CHECK(same(at::randn({4, 16, 6, 6}, at::kDouble).contiguous(kPointsLast), at::randn({8, 16, 1, 1}, at::kDouble)));
  CHECK(same(at::randn({16, 6, 6}), at::randn({8, 16, 1, 1})));  // one image
  at::autocast::set_autocast_enabled(at::kCPU, true);
  CHECK(same(at::randn({4, 16, 6, 6}).contiguous(kPointsLast), at::randn({8, 16, 1, 1})));
  at::autocast::set_autocast_enabled(at::kCPU, false);
  at::autocast::clear_cache();
  CHECK_THROWS_AS(point_conv2d(at::randn({4, 16, 6, 6}).contiguous(kPointsLast), at::randn({8, 12, 1, 1}), {}, {1, 1}),
                  c10::Error);
}

TEST_CASE("in bfloat16 convolutions of 1x1 and 3x3 as products equal float64's, of any sizes where they are taken") {
  if (!has_bfloat16_products()) {
    MESSAGE("skipped: this processor does not multiply bfloat16");
    return;
  }
  std::mt19937 random(6);  // NOLINT(bugprone-random-generator-seed): the same sizes each time
  at::manual_seed(6);
  const auto number = [&](int64_t least, int64_t most) {
    return std::uniform_int_distribution<int64_t>(least, most)(random);
  };
  const auto to_bfloat16 = [](const at::Tensor& x) { return x.to(at::kBFloat16).to(at::kFloat); };
  for (int i = 0; i < trainrun::test::fuzz_rounds(60); ++i) {
    const int64_t taps = number(0, 1) == 0 ? 1 : 3;
    const std::array<int64_t, 2> stride = {number(1, 3), number(1, 3)};
    const std::array<int64_t, 2> padding = {taps == 1 ? 0 : number(0, 2), taps == 1 ? 0 : number(0, 2)};
    const int64_t images = number(1, 40);
    const at::Tensor x =
        to_bfloat16(at::randn({images, 2 * number(1, 40), number(taps, 9), number(taps, 9)})).contiguous(kPointsLast);
    const at::Tensor bias = to_bfloat16(at::randn({2 * number(16, 60)}));
    const at::Tensor w = to_bfloat16(at::randn({bias.size(0), x.size(1), taps, taps}));
    CAPTURE(x.numel());
    CAPTURE(w.numel());
    const at::Tensor exact = at::conv2d(x.to(at::kDouble), w.to(at::kDouble), bias.to(at::kDouble), stride, padding);
    if (x.size(1) * taps * taps < 16 || exact.size(0) * exact.size(2) * exact.size(3) < 32) continue;
    const at::Tensor grad_y = to_bfloat16(at::randn(exact.sizes())).contiguous(kPointsLast);
    const std::vector<int64_t> one{1, 1}, zero{0, 0};
    const auto [of_x, of_w, of_bias] = at::convolution_backward(
        grad_y.to(at::kDouble), x.to(at::kDouble), w.to(at::kDouble), std::nullopt,
        std::vector<int64_t>(stride.begin(), stride.end()), std::vector<int64_t>(padding.begin(), padding.end()), one,
        false, zero, 1, {true, true, false});
    const ProductConvolution conv(x.sizes(), w.sizes(), stride, padding, true);
    const at::Tensor stored = x.to(at::kBFloat16), gradient = grad_y.to(at::kBFloat16);
    const at::Tensor y = conv.forward(stored, w, bias);
    CHECK(y.is_contiguous(kPointsLast));
    CHECK(error_of(y, exact) < 3e-3);  // of rounding to bfloat16
    const at::Tensor grad_x = conv.input_gradient(gradient, w);
    CHECK(grad_x.is_contiguous(kPointsLast));
    CHECK(error_of(grad_x, of_x) < 3e-3);
    CHECK(error_of(conv.filter_gradient(stored, gradient, w), of_w) < 1e-5);
  }
}

TEST_CASE("under autocast images of few points are convolved as products, with gradients of weights in float32") {
  const at::Tensor x = at::randn({8, 64, 4, 4}).contiguous(kPointsLast);
  const auto passes = [&](const at::Tensor& w, const auto& conv) {
    const Tensors inputs = {x, w, at::randn({64}, at::kFloat).fill_(0.5)};
    const at::Tensor grad_y = at::ones_like(at::conv2d(x, w, {}, {2, 2}, {w.size(2) / 2, w.size(2) / 2}));
    const Tensors exact = pass_of_points(conv, in_float64(inputs), grad_y.to(at::kDouble));
    at::autocast::set_autocast_enabled(at::kCPU, true);
    const Tensors found = pass_of_points(conv, inputs, grad_y.to(at::kBFloat16));
    at::autocast::set_autocast_enabled(at::kCPU, false);
    at::autocast::clear_cache();
    CHECK((found[0].scalar_type() == at::kBFloat16));
    for (size_t k = 0; k < exact.size(); ++k) {
      CHECK(error_of(found[k], exact[k]) < 1e-2);
      if (k > 0) CHECK((found[k].scalar_type() == at::kFloat));
    }
    // The gradient of the weights was not rounded, as it is where autocast multiplies weights of bfloat16.
    CHECK(at::equal(found[2], found[2].to(at::kBFloat16).to(at::kFloat)) != has_bfloat16_products());
  };
  passes(at::randn({64, 64, 1, 1}),
         [](const auto& in, const auto& w, const auto& b) { return point_conv2d(in, w, b, {2, 2}); });
  passes(at::randn({64, 64, 3, 3}),
         [](const auto& in, const auto& w, const auto& b) { return fast_conv2d(in, w, b, 2, {1, 1}); });
  const bool is_measured = has_bfloat16_products();
  CHECK(patch_product_pays({64, 64, 3, 3, 2, 2, 2, 8}) == is_measured);
  CHECK(patch_product_pays({64, 64, 1, 1, 1, 8, 8}) == is_measured);
  CHECK_FALSE(patch_product_pays({64, 64, 3, 3, 1, 8, 8, 8}));
  CHECK_FALSE(patch_product_pays({64, 64, 5, 5, 1, 2, 2, 8}));
  CHECK_FALSE(patch_product_pays({64, 64, 1, 1, 1, 2, 2, 4}));  // fewer rows than a product takes
  CHECK_FALSE(patch_product_pays({64, 63, 1, 1, 1, 4, 4, 8}));
}

TEST_CASE("whether a convolution of 1x1 is a product depends on its sizes alone") {
  const bool is_measured = best_cpu_path() != CpuPath::kGeneric;
  CHECK(point_product_pays(64, 256, 4) == is_measured);
  CHECK(point_product_pays(256, 128, 256) == is_measured);
  CHECK(point_product_pays(64, 256, 256) == (best_cpu_path() == CpuPath::kAvx2));
  CHECK_FALSE(point_product_pays(8, 256, 64));
  CHECK_FALSE(point_product_pays(64, 256, 1));
  const OwnProducts own;  // which are quicker than oneDNN's of any size
  CHECK(point_product_pays(64, 256, 256) == is_measured);
  CHECK_FALSE(point_product_pays(8, 256, 64));
}
