#include "runner/model/precision.h"

#include <ATen/autocast_mode.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones.h>

#include <cmath>
#include <limits>

#include "tests/doctest.h"

namespace trainrun {
namespace {

at::Tensor with_gradient(double value) {
  at::Tensor parameter = at::ones({2, 3}).set_requires_grad(true);
  parameter.mutable_grad() = at::full({2, 3}, value);
  return parameter;
}

GradScalerSection scaling(double init_scale, int64_t growth_interval) {
  GradScalerSection section;
  section.init_scale = init_scale;
  section.growth_interval = growth_interval;
  return section;
}

/// Unscales and adapts the scale; whether the step is made.
bool goes_on(GradScaler& scaler, const Tensors& parameters) {
  const at::Tensor overflow = scaler.unscale(parameters);
  scaler.update(overflow);
  return overflow.item<float>() == 0;
}

}  // namespace

TEST_CASE("autocast is for one device, and ends with its scope") {
  namespace autocast = at::autocast;
  {
    const Autocast on_gpu(at::kHalf, at::kCUDA);
    CHECK(autocast::is_autocast_enabled(at::kCUDA));
    const bool in_half = autocast::get_autocast_dtype(at::kCUDA) == at::kHalf;
    CHECK(in_half);
    CHECK(!autocast::is_autocast_enabled(at::kCPU));
  }
  CHECK(!autocast::is_autocast_enabled(at::kCUDA));
}

TEST_CASE("the scale grows after an interval without overflow and shrinks at each one") {
  GradScaler scaler(scaling(8, 2));
  const Tensors parameters = {with_gradient(16), at::ones({1}).set_requires_grad(true)};  // the second has no gradient
  CHECK(goes_on(scaler, parameters));
  CHECK(at::equal(parameters[0].grad(), at::full({2, 3}, 2.0)));
  CHECK(scaler.current() == 8);
  CHECK(goes_on(scaler, parameters));
  CHECK(scaler.current() == 16);
  CHECK(!goes_on(scaler, {with_gradient(std::numeric_limits<double>::infinity())}));
  CHECK(scaler.current() == 8);
  CHECK(!goes_on(scaler, {with_gradient(std::numeric_limits<double>::quiet_NaN()), with_gradient(1)}));
  CHECK(scaler.current() == 4);
}

TEST_CASE("a scaler's state is that of the steps before it") {
  GradScaler scaler(scaling(8, 3));
  for (int i = 0; i < 2; ++i) CHECK(goes_on(scaler, {with_gradient(1)}));
  GradScaler other(scaling(1, 3));
  other.load_state(scaler.state());
  CHECK(goes_on(other, {with_gradient(1)}));
  CHECK(other.current() == 16);
}

TEST_CASE("a scale that float32 cannot hold does not grow") {
  GradScaler scaler(scaling(3e38, 1));
  CHECK(goes_on(scaler, {with_gradient(1)}));
  CHECK(std::isfinite(scaler.current()));
}

TEST_CASE("autocast ends with its object, and nests") {
  const at::Tensor matrix = at::ones({4, 4});
  {
    const Autocast outer(at::kBFloat16);
    CHECK((at::matmul(matrix, matrix).scalar_type() == at::kBFloat16));
    {
      const Autocast inner(at::kHalf);
      CHECK((at::matmul(matrix, matrix).scalar_type() == at::kHalf));
    }
    CHECK((at::matmul(matrix, matrix).scalar_type() == at::kBFloat16));
    const Autocast none(std::nullopt);
    CHECK((at::matmul(matrix, matrix).scalar_type() == at::kBFloat16));
  }
  CHECK((at::matmul(matrix, matrix).scalar_type() == at::kFloat));
  CHECK(!at::autocast::is_autocast_enabled(at::kCPU));
}

}  // namespace trainrun
