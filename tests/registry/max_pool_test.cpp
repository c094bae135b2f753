#include "registry/kernels/max_pool.h"

#include <ATen/Context.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/max_pool2d.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>
#include <c10/core/InferenceMode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/function.h>

#include <array>
#include <cmath>
#include <limits>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "registry/language/error.h"
#include "tests/doctest.h"

using namespace trainrun::kernels;
namespace kernels = trainrun::kernels;

namespace {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

/// Few different values, so that windows have ties; NaN, infinities and both zeros among them.
at::Tensor awkward_values(at::IntArrayRef shape, at::ScalarType dtype = at::kFloat) {
  const at::Tensor values = at::tensor({-0.0F, 0.0F, 1.0F, 2.0F, -1.0F, kInfinity, -kInfinity, kNaN});
  const at::Tensor chosen = values.index({at::randint(0, values.size(0), shape, at::kLong)});
  return at::where(at::rand(shape) < 0.4, chosen, at::randn(shape)).to(dtype);
}

/// The bits, as whole numbers. One NaN counts as another: which of two a sum of them gives is left to the compiler, and
/// in bfloat16 ATen itself gives one or another by its place.
at::Tensor bits(const at::Tensor& x) {
  return at::where(x.isnan(), -1,
                   x.view(x.element_size() == 8   ? at::kLong
                          : x.element_size() == 4 ? at::kInt
                                                  : at::kShort));
}

/// Same type, shape and strides, and the same bits.
bool identical(const at::Tensor& a, const at::Tensor& b) {
  return a.scalar_type() == b.scalar_type() && a.sizes() == b.sizes() && a.strides() == b.strides() &&
         at::equal(bits(a), bits(b));
}

at::Tensor two_operations(const at::Tensor& x, const MaxPoolWindow& w) {
  return at::max_pool2d(at::relu(x), w.kernel_size, w.stride, w.padding, w.dilation, w.ceil_mode);
}

std::string text_of(const at::Tensor& x, const MaxPoolWindow& w) {
  std::ostringstream out;
  out << x.scalar_type() << " " << x.sizes() << " strides " << x.strides();
  out << " kernel " << at::IntArrayRef(w.kernel_size) << " stride " << at::IntArrayRef(w.stride) << " padding "
      << at::IntArrayRef(w.padding) << " dilation " << at::IntArrayRef(w.dilation) << " ceil_mode " << w.ceil_mode;
  return out.str();
}

at::Tensor pool_alone(const at::Tensor& x, const MaxPoolWindow& w) {
  return at::max_pool2d(x, w.kernel_size, w.stride, w.padding, w.dilation, w.ceil_mode);
}

/// Checks the output, the gradient and the derivative of the gradient against ATen's two operations, or, without a ReLU,
/// the one.
template <bool kRelu = true>
void check_identical(const at::Tensor& x, const MaxPoolWindow& window, CpuPath path) {
  INFO(text_of(x, window), ", path ", name_of(path));
  REQUIRE((kRelu ? supports_relu_max_pool2d(x, window) : supports_max_pool2d(x, window)));
  const auto two_operations = [](const at::Tensor& in, const MaxPoolWindow& w) {
    return kRelu ? ::two_operations(in, w) : pool_alone(in, w);
  };
  const auto relu_max_pool2d = [](const at::Tensor& in, const MaxPoolWindow& w, CpuPath by) {
    return kRelu ? kernels::relu_max_pool2d(in, w, by) : kernels::max_pool2d(in, w, by);
  };
  const auto aten_x = x.detach().clone().requires_grad_(), our_x = x.detach().clone().requires_grad_();
  const at::Tensor aten_y = two_operations(aten_x, window), our_y = relu_max_pool2d(our_x, window, path);
  CHECK(identical(our_y.detach(), aten_y.detach()));
  CHECK(identical(relu_max_pool2d(x, window, path), aten_y.detach()));  // where no gradient is wanted

  const at::Tensor weights = awkward_values(aten_y.sizes(), x.scalar_type());
  const auto aten_weights = weights.clone().requires_grad_(), our_weights = weights.clone().requires_grad_();
  using torch::autograd::grad;
  const at::Tensor aten_gradient = grad({aten_y}, {aten_x}, {aten_weights}, true, true)[0];
  const at::Tensor our_gradient = grad({our_y}, {our_x}, {our_weights}, true, true)[0];
  CHECK(identical(our_gradient.detach(), aten_gradient.detach()));

  const at::Tensor second = awkward_values(x.sizes(), x.scalar_type());
  const at::Tensor aten_second = grad({aten_gradient}, {aten_weights}, {second})[0];
  CHECK(at::equal(bits(grad({our_gradient}, {our_weights}, {second})[0].contiguous()), bits(aten_second.contiguous())));
}

struct Draw {
  std::mt19937 generator{7};  // NOLINT(bugprone-random-generator-seed): the same windows each time
  int64_t operator()(int64_t least, int64_t most) {
    return std::uniform_int_distribution<int64_t>(least, most)(generator);
  }
};

/// A window that fits an image of `size`, and meets it everywhere.
MaxPoolWindow random_window(Draw& draw, const std::array<int64_t, 2>& size) {
  MaxPoolWindow w{};
  for (const size_t dim : {0, 1}) {
    do {
      w.kernel_size[dim] = draw(1, 5);
      w.stride[dim] = draw(1, 4);
      w.dilation[dim] = draw(1, 3);
      w.padding[dim] = draw(0, w.kernel_size[dim] / 2);
    } while (size[dim] + 2 * w.padding[dim] < w.dilation[dim] * (w.kernel_size[dim] - 1) + 1 ||
             (w.padding[dim] > 0 && w.dilation[dim] > size[dim]));
  }
  w.ceil_mode = draw(0, 1) == 1;
  return w;
}

const MaxPoolWindow kHalving{{2, 2}, {2, 2}};

}  // namespace

TEST_CASE("windows of 2x2 give what ReLU and MaxPool2d give, bit for bit, on every path and at every width") {
  at::manual_seed(1);
  for (const CpuPath path : {CpuPath::kGeneric, CpuPath::kAvx2, CpuPath::kAvx512}) {
    if (!is_available(path)) {
      MESSAGE("skipped: this processor has no " << name_of(path));
      continue;
    }
    for (int64_t width = 2; width <= 70; ++width) {
      for (const int64_t height : {2, 5}) check_identical(awkward_values({2, 3, height, width}), kHalving, path);
    }
    check_identical(awkward_values({3, 26, 26}), kHalving, path);
    check_identical(awkward_values({0, 3, 8, 8}), kHalving, path);
    check_identical(awkward_values({64, 32, 26, 26}), kHalving, path);  // enough for several threads
    MaxPoolWindow ceil = kHalving;
    ceil.ceil_mode = true;
    for (const int64_t size : {4, 7, 33}) check_identical(awkward_values({2, 2, size, size + 1}), ceil, path);
  }
}

TEST_CASE("windows of 2x2 without a ReLU, and in bfloat16, give what MaxPool2d gives, bit for bit, on every path") {
  at::manual_seed(2);
  for (const CpuPath path : available_cpu_paths()) {
    for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
      for (int64_t width = 2; width <= 70; ++width) {
        check_identical<false>(awkward_values({2, 3, 5, width}, type), kHalving, path);
        check_identical(awkward_values({2, 3, 5, width}, type), kHalving, path);
      }
      check_identical<false>(awkward_values({64, 32, 26, 26}, type), kHalving, path);  // enough for several threads
      check_identical<false>(at::zeros({1, 1, 4, 6}, type) - kInfinity, kHalving, path);
    }
  }
  MaxPoolWindow ceil = kHalving;
  ceil.ceil_mode = true;
  for (const auto& [x, window] : std::vector<std::pair<at::Tensor, MaxPoolWindow>>{
           {at::randn({1, 2, 5, 5}), ceil},
           {at::randn({1, 2, 6, 6}), {{3, 3}, {2, 2}, {1, 1}}},
           {at::randn({1, 4, 6, 6}).contiguous(at::MemoryFormat::ChannelsLast), kHalving},
           {at::randn({1, 2, 6, 6}).to(at::kDouble), kHalving}}) {
    CHECK_FALSE(supports_max_pool2d(x, window));
    CHECK(identical(max_pool2d(x, window), pool_alone(x, window)));
  }
}

TEST_CASE("any window, type and memory format gives what ReLU and MaxPool2d give, bit for bit") {
  at::manual_seed(2);
  Draw draw;
  int num_channels_last = 0;
  const at::ScalarType types[] = {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf};
  for (int i = 0; i < 400; ++i) {
    const std::array<int64_t, 2> size{draw(1, 12), draw(1, 20)};
    const MaxPoolWindow window = random_window(draw, size);
    at::Tensor x = awkward_values({draw(0, 3), draw(1, 5), size[0], size[1]}, types[draw(0, 3)]);
    if (draw(0, 1) == 1) x = x.contiguous(at::MemoryFormat::ChannelsLast);
    if (draw(0, 3) == 0) x = awkward_values({draw(1, 5), size[0], size[1]}, x.scalar_type());
    if (!supports_relu_max_pool2d(x, window)) {
      CHECK_FALSE(x.is_contiguous());  // overlapping windows of channels_last are left to ATen
      continue;
    }
    check_identical(x, window, best_cpu_path());
    num_channels_last += x.is_contiguous() ? 0 : 1;
  }
  CHECK(num_channels_last > 10);
}

TEST_CASE("the ReLU of a fused pooling treats NaN, infinities and -0.0 as PyTorch does") {
  for (const CpuPath path : available_cpu_paths()) {
    INFO(name_of(path));
    const auto value_of = [&](float a, float b, float c, float d) {
      return relu_max_pool2d(at::tensor({a, b, c, d}).view({1, 1, 2, 2}), kHalving, path).item<float>();
    };
    const auto winner_of = [&](float a, float b, float c, float d) {
      const at::Tensor x = at::tensor({a, b, c, d}).view({1, 1, 2, 2}).requires_grad_();
      relu_max_pool2d(x, kHalving, path).sum().backward();
      const at::Tensor won = x.grad().flatten().nonzero();
      return won.numel() == 0 ? -1 : won.item<int64_t>();
    };
    CHECK(std::isnan(value_of(1, kNaN, kInfinity, 2)));
    CHECK(winner_of(1, kNaN, kInfinity, kNaN) == 3);  // the last NaN
    CHECK(value_of(-1, -kInfinity, -2, -3) == 0);
    CHECK_FALSE(std::signbit(value_of(-1, -0.0F, -2, -3)));
    CHECK(std::signbit(value_of(-0.0F, -1, 0, -3)));
    CHECK(winner_of(-1, 0, -0.0F, -3) == -1);  // the ReLU's gradient at 0 is 0
    CHECK(winner_of(1, 3, 3, 2) == 1);         // the first of equals
    CHECK(winner_of(-5, kInfinity, kInfinity, 2) == 1);
  }
}

TEST_CASE("x may change in place between the forward and the backward pass of a fused pooling") {
  const at::Tensor leaf = at::randn({2, 3, 8, 8}).requires_grad_(), x = leaf * 1;
  const at::Tensor aten_leaf = leaf.detach().clone().requires_grad_();
  const at::Tensor y = relu_max_pool2d(x, kHalving);
  x.detach().zero_();
  y.sum().backward();
  two_operations(aten_leaf, kHalving).sum().backward();
  CHECK(identical(leaf.grad(), aten_leaf.grad()));
}

TEST_CASE("a fused pooling in inference mode or without gradients leaves no graph") {
  const at::Tensor x = at::randn({2, 3, 9, 9}).requires_grad_();
  {
    const c10::AutoGradMode no_gradients(false);
    CHECK(relu_max_pool2d(x, kHalving).grad_fn() == nullptr);
  }
  const c10::InferenceMode inference;
  const at::Tensor inside = at::randn({2, 3, 9, 9});
  REQUIRE(supports_relu_max_pool2d(inside, kHalving));
  CHECK(identical(relu_max_pool2d(inside, kHalving), two_operations(inside, kHalving)));
}

TEST_CASE("what a fused pooling does not support is computed by ATen's two operations") {
  const auto check = [](const at::Tensor& x, const MaxPoolWindow& window) {
    INFO(text_of(x, window));
    CHECK_FALSE(supports_relu_max_pool2d(x, window));
    CHECK(at::equal(relu_max_pool2d(x, window), two_operations(x, window)));
    if (!x.is_floating_point()) return;
    const at::Tensor leaf = x.detach().requires_grad_();
    CHECK(relu_max_pool2d(leaf, window).grad_fn()->name() == two_operations(leaf, window).grad_fn()->name());
  };
  check(at::randn({2, 3, 8, 10}).transpose(2, 3), kHalving);
  check(at::randn({2, 3, 8, 8}).slice(3, 0, 7), kHalving);
  check(at::randint(-5, 5, {2, 3, 8, 8}, at::kInt), kHalving);
  check(at::randn({2, 3, 8, 8}).contiguous(at::MemoryFormat::ChannelsLast), {{3, 3}, {2, 2}});
  check(at::randn({1, 1, 20, 20}), {{16, 16}, {1, 1}});
  check(at::randn({1, 1, 1, 8}), {{2, 2}, {1, 2}, {1, 0}, {2, 1}});  // a window between two points of padding

  CHECK_FALSE(supports_relu_max_pool2d(at::empty({2, 3, 8, 8}, at::kMeta), kHalving));
  const at::Tensor x = at::randn({2, 3, 8, 8});
  const at::Tensor leaf = x.detach().requires_grad_();
  CHECK(relu_max_pool2d(leaf, kHalving).grad_fn()->name() != two_operations(leaf, kHalving).grad_fn()->name());
  const c10::impl::IncludeDispatchKeyGuard mode(c10::DispatchKey::TESTING_ONLY_GenericMode);
  CHECK_FALSE(supports_relu_max_pool2d(x, kHalving));  // the mode would not see it
}

TEST_CASE("whether a ReLU and a pooling can be fused is known from the window and the type") {
  CHECK(can_fuse_relu_max_pool2d(kHalving, at::kFloat));
  CHECK(can_fuse_relu_max_pool2d({{15, 17}, {1, 1}}, at::kBFloat16));
  CHECK_FALSE(can_fuse_relu_max_pool2d({{16, 16}, {1, 1}}, at::kFloat));
  CHECK_FALSE(can_fuse_relu_max_pool2d({{1, 256}, {1, 1}}, at::kFloat));
  CHECK_FALSE(can_fuse_relu_max_pool2d(kHalving, at::kLong));
}

TEST_CASE("a window that does not fit is refused with max_pool2d's own message") {
  const auto message_of = [](const auto& call) -> std::string {
    try {
      call();
    } catch (const c10::Error& error) {
      return error.what_without_backtrace();
    }
    return "";
  };
  const MaxPoolWindow too_large{{9, 9}, {9, 9}}, too_padded{{2, 2}, {2, 2}, {2, 2}}, still{{2, 2}, {0, 2}};
  for (const MaxPoolWindow& window : {too_large, too_padded, still}) {
    const at::Tensor x = at::randn({2, 3, 8, 8});
    const std::string expected = message_of([&] { two_operations(x, window); });
    CHECK(expected != "");
    CHECK(message_of([&] { relu_max_pool2d(x, window); }) == expected);
  }
}

TEST_CASE("instructions that the processor lacks are refused by name") {
  CHECK(is_available(CpuPath::kGeneric));
  CHECK(available_cpu_paths().back() == best_cpu_path());
  for (const CpuPath path : {CpuPath::kAvx2, CpuPath::kAvx512}) {
    if (is_available(path)) continue;
    CHECK_THROWS_WITH_AS(relu_max_pool2d(at::randn({1, 1, 4, 4}), kHalving, path),
                         ("relu_max_pool2d: this processor has no " + name_of(path)).c_str(), trainrun::Error);
  }
}
