#include "runner/model/gradients.h"

#include <ATen/ops/equal.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/tensor.h>

#include "tests/doctest.h"

namespace trainrun {

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
