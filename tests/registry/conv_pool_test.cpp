#include "registry/kernels/conv_pool.h"

#include <ATen/TensorOperators.h>
#include <ATen/autocast_mode.h>
#include <ATen/ops/conv2d.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/max_pool2d.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/relu.h>
#include <torch/csrc/autograd/autograd.h>

#include <random>
#include <string>
#include <vector>

#include "tests/cpu_paths.h"
#include "tests/doctest.h"
#include "tests/support.h"
#include "tests/tensor_errors.h"
#include "tests/threads.h"

using namespace trainrun::kernels;
using trainrun::test::error_of;
using trainrun::test::Threads;
using trainrun::test::vector_paths;

namespace {

struct ConvPoolCase {
  int64_t images, channels, height, width, filters, taps;
  ConvPoolTerms terms = {};
  bool has_bias = true, is_bfloat16 = false;
};

std::string text_of_conv(const ConvPoolCase& c) {
  std::string text;
  for (const int64_t size : {c.images, c.channels, c.height, c.width, c.filters, c.taps, c.terms.padding}) {
    text += std::to_string(size) + " ";
  }
  return text + (c.terms.has_relu ? "relu " : "") + (c.has_bias ? "bias " : "") + (c.is_bfloat16 ? "bfloat16" : "");
}

at::Tensor conv_of_aten(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                        const ConvPoolTerms& terms) {
  const auto given = bias.defined() ? std::optional(bias) : std::nullopt;
  const at::Tensor y = at::conv2d(x, weight, given, {1, 1}, at::IntArrayRef{terms.padding, terms.padding});
  return at::max_pool2d(terms.has_relu ? at::relu(y) : y, {2, 2});
}

void check_conv_pool(const ConvPoolCase& c, CpuPath path) {
  CAPTURE(text_of_conv(c));
  CAPTURE(static_cast<int>(path));
  const auto type = c.is_bfloat16 ? at::kBFloat16 : at::kFloat;
  // Numbers whose sums are exact, so that the same points of the windows win.
  const at::Tensor x = (at::randint(-16, 17, {c.images, c.channels, c.height, c.width}) / 8).to(type);
  const auto learned = [](at::IntArrayRef sizes) { return (at::randint(-16, 17, sizes) / 8).requires_grad_(); };
  const at::Tensor weight = learned({c.filters, c.channels, c.taps, c.taps});
  const at::Tensor bias = c.has_bias ? learned({c.filters}) : at::Tensor();
  const auto wide = [](const at::Tensor& tensor) {
    return tensor.defined() ? tensor.detach().to(at::kDouble).requires_grad_() : tensor;
  };
  const at::Tensor exact_weight = wide(weight), exact_bias = wide(bias);
  const at::Tensor expected = conv_of_aten(x.to(at::kDouble), exact_weight, exact_bias, c.terms);
  REQUIRE(can_fuse_conv_max_pool2d(x.sizes(), weight.sizes(), c.terms));
  at::autocast::set_autocast_enabled(at::kCPU, c.is_bfloat16);
  const at::Tensor y = conv_max_pool2d(x, weight, bias, c.terms, path);
  at::autocast::set_autocast_enabled(at::kCPU, false);
  REQUIRE(y.sizes() == expected.sizes());
  CHECK(y.dtype() == type);
  CHECK(y.equal(expected.to(type)));
  const at::Tensor grad_y = (at::randint(-16, 17, y.sizes()) / 8).to(type);
  std::vector<at::Tensor> inputs{weight}, exact_inputs{exact_weight};
  if (c.has_bias) {
    inputs.push_back(bias);
    exact_inputs.push_back(exact_bias);
  }
  const auto found = torch::autograd::grad({y}, inputs, {grad_y});
  const auto wanted = torch::autograd::grad({expected}, exact_inputs, {grad_y.to(at::kDouble)});
  for (size_t i = 0; i < found.size(); ++i) CHECK(found[i].equal(wanted[i].to(at::kFloat)));
}

}  // namespace

TEST_CASE("convolution with pooling: random sizes equal float64 on every path and with any number of threads") {
  at::manual_seed(3);
  std::mt19937 random(3);  // NOLINT(bugprone-random-generator-seed): the same on every run
  const auto from = [&](int64_t least, int64_t most) {
    return least + static_cast<int64_t>(random() % static_cast<uint64_t>(most - least + 1));
  };
  for (int i = 0; i < trainrun::test::fuzz_rounds(60); ++i) {
    const int64_t taps = from(0, 1) == 0 ? 3 : 5;
    ConvPoolCase c{from(1, 5), from(1, 4), from(taps + 1, 40), from(12 + taps, 90), from(1, 9), taps};
    if (i % 10 == 0) c.images = from(33, 70);
    c.terms = {from(0, taps / 2), from(0, 1) == 0};
    c.has_bias = from(0, 2) > 0;
    c.is_bfloat16 = from(0, 2) == 0;
    const Threads threads(static_cast<int>(from(1, 3)));
    for (const CpuPath path : vector_paths()) check_conv_pool(c, path);
  }
}

TEST_CASE("convolution with pooling: sums that round equal float64 but for the last bits") {
  const at::Tensor x = at::randn({3, 3, 32, 32}), weight = at::randn({8, 3, 5, 5}), bias = at::randn({8});
  const auto wide = [](const at::Tensor& tensor) { return tensor.to(at::kDouble); };
  for (const ConvPoolTerms& terms : {ConvPoolTerms{0, true}, ConvPoolTerms{2, false}}) {
    const at::Tensor expected = conv_of_aten(wide(x), wide(weight), wide(bias), terms);
    for (const CpuPath path : vector_paths()) {
      CHECK(error_of(conv_max_pool2d(x, weight, bias, terms, path), expected) < 1e-6);
    }
  }
}

TEST_CASE("convolution with pooling: what it does not compute is ATen's, bit for bit") {
  const at::Tensor x = at::randn({2, 3, 20, 20}), weight = at::randn({4, 3, 3, 3}), bias = at::randn({4});
  const auto is_atens = [&](const at::Tensor& in) {
    return conv_max_pool2d(in, weight.to(in.scalar_type()), bias.to(in.scalar_type()), {})
        .equal(conv_of_aten(in, weight.to(in.scalar_type()), bias.to(in.scalar_type()), {}));
  };
  CHECK(is_atens(x.to(at::kDouble)));
  CHECK(is_atens(x.contiguous(at::MemoryFormat::ChannelsLast)));
  CHECK(is_atens(x[0]));
  CHECK(is_atens(x.clone().requires_grad_()));
  CHECK_FALSE(can_fuse_conv_max_pool2d({2, 5, 20, 20}, {4, 5, 3, 3}, {}));
  CHECK_FALSE(can_fuse_conv_max_pool2d({2, 3, 20, 20}, {4, 3, 7, 7}, {}));
  CHECK_FALSE(can_fuse_conv_max_pool2d({2, 3, 20, 12}, {4, 3, 3, 3}, {}));
}

TEST_CASE("convolution with pooling: gradients of the second order are ATen's") {
  const at::Tensor x = at::randn({2, 1, 16, 16});
  const at::Tensor weight = at::randn({3, 1, 3, 3}).requires_grad_(), bias = at::randn({3}).requires_grad_();
  const auto second = [&](const at::Tensor& y) {
    const auto first = torch::autograd::grad({y.pow(3).sum()}, {weight}, {}, true, true);
    return torch::autograd::grad({first[0].square().sum()}, {weight, bias});
  };
  const auto found = second(conv_max_pool2d(x, weight, bias, {})), expected = second(conv_of_aten(x, weight, bias, {}));
  for (size_t i = 0; i < 2; ++i) CHECK(error_of(found[i], expected[i].to(at::kDouble)) < 1e-4);
}
