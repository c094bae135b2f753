#include "registry/kernels/winograd.h"

#include <ATen/TensorOperators.h>
#include <ATen/autocast_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/conv2d.h>
#include <ATen/ops/convolution_backward.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/randn.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "registry/kernels/convolution.h"
#include "tests/doctest.h"
#include "tests/sanitizers.h"
#include "tests/support.h"
#include "tests/tensor_errors.h"
#include "tests/threads.h"

using namespace trainrun::kernels;
using trainrun::test::error_of;
using trainrun::test::Threads;

namespace {

constexpr auto kLast = at::MemoryFormat::ChannelsLast;

struct Case {
  WinogradTile tile;
  int64_t images, channels, filters, height, width, taps;
  std::array<int64_t, 2> padding;
  bool is_bfloat16;
  int64_t stride = 1;
};

std::string text_of(const Case& c) {
  return std::to_string(c.images) + " images of " + std::to_string(c.channels) + " x " + std::to_string(c.height) +
         " x " + std::to_string(c.width) + ", " + std::to_string(c.filters) + " filters of " + std::to_string(c.taps) +
         " taps, tile " + std::to_string(static_cast<int>(c.tile)) + ", padding " + std::to_string(c.padding[0]) +
         ", " + std::to_string(c.padding[1]) + (c.is_bfloat16 ? ", bfloat16" : "");
}

/// y, and the gradients of x and of the weights, as convolution and its gradients are defined.
std::vector<at::Tensor> by_definition(const at::Tensor& x, const at::Tensor& w, const at::Tensor& grad_y,
                                      const at::Tensor& bias, int64_t stride, std::array<int64_t, 2> padding) {
  const std::vector<int64_t> one{1, 1}, zero{0, 0}, steps{stride, stride};
  const auto [grad_x, grad_w, unused] =
      at::convolution_backward(grad_y, x, w, c10::nullopt, steps, padding, one, false, zero, 1, {true, true, false});
  return {at::conv2d(x, w, bias, steps, padding), grad_x, grad_w};
}

void check(const Case& c, const std::vector<CpuPath>& paths = {best_cpu_path()}) {
  CAPTURE(text_of(c));
  const auto type = c.is_bfloat16 ? at::kBFloat16 : at::kFloat;
  const int64_t out_height = (c.height + 2 * c.padding[0] - c.taps) / c.stride + 1,
                out_width = (c.width + 2 * c.padding[1] - c.taps) / c.stride + 1;
  const at::Tensor x = at::randn({c.images, c.channels, c.height, c.width}).to(type).contiguous(kLast);
  const at::Tensor w = at::randn({c.filters, c.channels, c.taps, c.taps});
  const at::Tensor bias = at::randn({c.filters});
  const at::Tensor grad_y = at::randn({c.images, c.filters, out_height, out_width}).to(type).contiguous(kLast);
  const auto exact = by_definition(x.to(at::kDouble), w.to(at::kDouble), grad_y.to(at::kDouble), bias.to(at::kDouble),
                                   c.stride, c.padding);
  for (const CpuPath path : paths) {
    CAPTURE(name_of(path));
    const Winograd winograd(x.sizes(), w.sizes(), c.stride, c.padding, c.is_bfloat16, c.tile, path);
    const std::vector<at::Tensor> ours = {winograd.forward(x, w, bias), winograd.input_gradient(grad_y, w),
                                          winograd.filter_gradient(x, grad_y)};
    REQUIRE(ours[0].sizes() == exact[0].sizes());
    REQUIRE(ours[1].sizes() == x.sizes());
    REQUIRE(ours[2].sizes() == w.sizes());
    CHECK(ours[0].is_contiguous(kLast));
    CHECK(ours[1].is_contiguous(kLast));
    CHECK(ours[2].is_contiguous());
    CHECK((ours[2].scalar_type() == at::kFloat));
    // bfloat16 rounds what is stored to 8 bits; of 2,000 shapes in float32 the worst was 3.4e-6, with 5 taps.
    const double of_activations = c.is_bfloat16 ? 4e-3 : 4e-6;
    CHECK(error_of(ours[0], exact[0]) < of_activations);
    CHECK(error_of(ours[1], exact[1]) < of_activations);
    CHECK(error_of(ours[2], exact[2]) < 1e-5);  // sums over all pixels
  }
}

Case random_case(std::mt19937& random) {
  const auto number = [&](int64_t least, int64_t most) {
    return std::uniform_int_distribution<int64_t>(least, most)(random);
  };
  Case c{static_cast<WinogradTile>(number(0, 5)), number(1, 6), 0, 0, 0, 0, 3, {0, 0}, number(0, 3) == 0};
  if (c.tile == WinogradTile::kOutputs3Taps5) c.taps = 5;
  if (c.tile == WinogradTile::kStrided2Taps3 || c.tile == WinogradTile::kStrided4Taps3) c.stride = 2;
  c.channels = number(0, 1) == 0 ? number(1, 20) : number(1, 70);
  c.filters = number(0, 1) == 0 ? number(1, 20) : number(1, 130);
  c.padding = {number(0, c.taps), number(0, c.taps / 2)};
  c.height = number(std::max<int64_t>(1, c.taps - 2 * c.padding[0]), 19);
  c.width = number(std::max<int64_t>(1, c.taps - 2 * c.padding[1]), 19);
  if (c.tile == WinogradTile::kPadded2Taps3) {
    c.padding = {1, 1};
    c.height = c.width = 2;
    if (number(0, 2) == 0) c.images = number(120, 300);
  }
  if (number(0, 9) == 0) c.images = number(20, 60);  // more tiles than are computed at once
  return c;
}

/// A convolution whose sizes winograd_pays accepts, and one pass forward and backward over it.
struct Net {
  at::Tensor x = at::randn({8, 64, 16, 16}).requires_grad_();
  at::Tensor w = at::randn({64, 64, 3, 3}).requires_grad_();
  at::Tensor bias = at::randn({64}).requires_grad_();

  std::vector<at::Tensor> run(bool fast, int64_t stride = 1) const {
    const at::Tensor y =
        fast ? fast_conv2d(x, w, bias, stride, {1, 1}) : at::conv2d(x, w, bias, {stride, stride}, {1, 1});
    const at::Tensor weights = at::arange(16 / stride, at::kFloat).sub(8);
    const auto gradients = torch::autograd::grad({(y.to(at::kFloat) * weights).sum()}, {x, w, bias});
    return {y, gradients[0], gradients[1], gradients[2]};
  }
};

}  // namespace

TEST_CASE("Winograd's convolutions equal float64's by the definition, for any sizes, on every path") {
  std::mt19937 random(7);  // NOLINT(bugprone-random-generator-seed): the same sizes each time
  at::manual_seed(7);
  for (int i = 0; i < trainrun::test::fuzz_rounds(120); ++i) check(random_case(random), available_cpu_paths());
}

TEST_CASE("Winograd's convolutions divide images, tiles and channels among threads") {
  std::mt19937 random(8);  // NOLINT(bugprone-random-generator-seed)
  for (const int threads : {1, 2, 3, 5}) {
    const Threads set(threads);
    for (int i = 0; i < trainrun::test::fuzz_rounds(12); ++i) check(random_case(random));
    // many tiles of one image; sums that are too many for each thread to have its own
    check({WinogradTile::kOutputs4Taps3, 1, 40, 36, 70, 50, 3, {1, 1}, false});
    if (trainrun::test::kIsSanitized && threads != 3) continue;  // the same code takes a while for them
    check({WinogradTile::kOutputs4Taps3, 40, 200, 150, 9, 9, 3, {1, 1}, false});
  }
}

TEST_CASE("an error of Winograd's convolutions is at most a few times that of direct ones") {
  at::manual_seed(3);
  const auto check_errors = [](int64_t channels, int64_t stride, WinogradTile tile) {
    CAPTURE(channels);
    CAPTURE(static_cast<int>(tile));
    const int64_t size = tile == WinogradTile::kPadded2Taps3 ? 2 : 12;
    const at::Tensor x = at::randn({16, channels, size, size}).relu().contiguous(kLast);
    const at::Tensor w = at::randn({channels, channels, 3, 3}) * std::sqrt(2.0 / static_cast<double>(9 * channels));
    const at::Tensor grad_y = at::randn({16, channels, size / stride, size / stride}).contiguous(kLast);
    const auto exact = by_definition(x.to(at::kDouble), w.to(at::kDouble), grad_y.to(at::kDouble), {}, stride, {1, 1});
    const auto direct = by_definition(x, w, grad_y, {}, stride, {1, 1});
    const Winograd winograd(x.sizes(), w.sizes(), stride, {1, 1}, false, tile, best_cpu_path());
    CHECK(error_of(winograd.forward(x, w, {}), exact[0]) < 3 * error_of(direct[0], exact[0]));
    CHECK(error_of(winograd.input_gradient(grad_y, w), exact[1]) < 3 * error_of(direct[1], exact[1]));
    CHECK(error_of(winograd.filter_gradient(x, grad_y), exact[2]) < 10 * error_of(direct[2], exact[2]));
  };
  for (const int64_t channels : {32, 64, 256}) {
    if (trainrun::test::kIsSanitized && channels > 64) break;  // the same code takes a while for them
    check_errors(channels, 1, WinogradTile::kOutputs4Taps3);
    check_errors(channels, 1, WinogradTile::kPadded2Taps3);
    check_errors(channels, 2, WinogradTile::kStrided4Taps3);
    check_errors(channels, 2, WinogradTile::kStrided2Taps3);
  }
}

TEST_CASE("fast_conv2d gives conv2d's output and gradients but for rounding") {
  const Net net;
  const auto ours = net.run(true), theirs = net.run(false);
  for (size_t i = 0; i < ours.size(); ++i) CHECK(error_of(ours[i], theirs[i].to(at::kDouble)) < 3e-6);
  CHECK((ours[0].strides() == theirs[0].strides() && ours[1].strides() == theirs[1].strides()));
  const at::Tensor last = net.x.detach().contiguous(kLast);
  CHECK(fast_conv2d(last, net.w, net.bias, 1, {1, 1}).is_contiguous(kLast));
  const c10::NoGradGuard no_grad;
  CHECK(at::equal(fast_conv2d(net.x, net.w, net.bias, 1, {1, 1}), ours[0]));
}

TEST_CASE("fast_conv2d of stride 2 gives conv2d's output and gradients but for rounding, where it was measured") {
  const Net net;
  const auto ours = net.run(true, 2), theirs = net.run(false, 2);
  for (size_t i = 0; i < ours.size(); ++i) {
    CHECK(error_of(ours[i], theirs[i].to(at::kDouble)) < 3e-6);
    CHECK(ours[i].strides() == theirs[i].strides());
  }
  CHECK(at::equal(ours[0], theirs[0]) == (best_cpu_path() == CpuPath::kGeneric));
  CHECK(winograd_pays({64, 64, 3, 3, 2, 8, 8, 8}, false) == (best_cpu_path() != CpuPath::kGeneric));
  CHECK_FALSE(winograd_pays({64, 64, 3, 3, 2, 8, 8, 8}, true));   // bfloat16
  CHECK_FALSE(winograd_pays({64, 64, 3, 3, 3, 8, 8, 8}, false));  // stride 3
  CHECK_FALSE(winograd_pays({64, 64, 3, 3, 2, 9, 9, 8}, false));  // tiles of 16 or 12 outputs, of which many are unused
}

TEST_CASE("an image of 2x2 with padding is one tile, which multiplies by none of the padding's zeros") {
  CHECK((best_winograd_tile(3, 1, true, 2, 2) == WinogradTile::kPadded2Taps3));
  CHECK(winograd_work(WinogradTile::kPadded2Taps3, 2, 2) == doctest::Approx(9.0 / 36));
  CHECK((best_winograd_tile(3, 1, false, 2, 2) == WinogradTile::kOutputs2Taps3));  // of an image of 4x4 without padding
  CHECK((best_winograd_tile(3, 1, true, 2, 4) != WinogradTile::kPadded2Taps3));
  const auto with_padding = [](int64_t size, int64_t padding) {
    return Winograd({1, 32, size, size}, {32, 32, 3, 3}, 1, {padding, padding}, false, WinogradTile::kPadded2Taps3,
                    best_cpu_path());
  };
  CHECK_NOTHROW(with_padding(2, 1));
  CHECK_THROWS_WITH(with_padding(4, 0), "the tile does not fit this convolution");
  CHECK_THROWS_WITH(with_padding(4, 1), "the tile does not fit this convolution");
}

TEST_CASE("fast_conv2d has derivatives of second order, which are conv2d's") {
  const Net net;
  const auto penalty = [&](const at::Tensor& y) {
    const at::Tensor gradient = torch::autograd::grad({y.square().sum()}, {net.x}, {}, true, true)[0];
    return torch::autograd::grad({gradient.square().sum()}, {net.w})[0];
  };
  for (const int64_t stride : {1, 2}) {
    const at::Tensor ours = penalty(fast_conv2d(net.x, net.w, net.bias, stride, {1, 1}));
    const at::Tensor theirs = penalty(at::conv2d(net.x, net.w, net.bias, {stride, stride}, {1, 1}));
    CHECK(error_of(ours, theirs.to(at::kDouble)) < 1e-5);
  }
}

TEST_CASE("under autocast fast_conv2d gives bfloat16, with gradients of weights in float32") {
  const Net net;
  const auto expected = net.run(false);
  at::autocast::set_autocast_enabled(at::kCPU, true);
  const auto ours = net.run(true);
  at::autocast::set_autocast_enabled(at::kCPU, false);
  at::autocast::clear_cache();
  CHECK((ours[0].scalar_type() == at::kBFloat16));
  for (size_t i = 0; i < ours.size(); ++i) {
    CHECK(error_of(ours[i], expected[i].to(at::kDouble)) < 1e-2);
    if (i > 0) CHECK((ours[i].scalar_type() == at::kFloat));
  }
}

TEST_CASE("what Winograd's algorithm does not compute, ATen's conv2d does, bit for bit") {
  const auto same = [](const at::Tensor& x, const at::Tensor& w) {
    return at::equal(fast_conv2d(x, w, {}, 1, {1, 1}), at::conv2d(x, w, {}, {1, 1}, {1, 1}));
  };
  CHECK(same(at::randn({4, 64, 16, 16}, at::kDouble), at::randn({64, 64, 3, 3}, at::kDouble)));
  CHECK(same(at::randn({4, 3, 16, 16}), at::randn({64, 3, 3, 3})));    // few channels
  CHECK(same(at::randn({1, 64, 4, 4}), at::randn({64, 64, 3, 3})));    // few pixels
  CHECK(same(at::randn({4, 64, 16, 16}), at::randn({64, 64, 3, 5})));  // not a square
  CHECK(same(at::randn({4, 64, 16, 16}), at::randn({64, 64, 1, 1})));
  CHECK_THROWS_AS(fast_conv2d(at::randn({4, 64, 16, 16}), at::randn({64, 32, 3, 3}), {}, 1, {1, 1}), c10::Error);
}
