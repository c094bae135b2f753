#include "registry/optimizers/line_search.h"

#include <ATen/ops/zeros.h>

#include "tests/doctest.h"

using namespace trainrun;  // NOLINT(google-build-using-namespace)

TEST_CASE("the minimum of a cubic is rounded as PyTorch rounds it") {
  struct Row {
    double first_value, first_slope, t, value, slope, expected;
  };
  // torch.optim.lbfgs._cubic_interpolate(0, first_value, first_slope, t, value, slope) of torch 2.11, slopes being
  // float32 tensors. In float64 the last is 2.05e-14, which sends the search elsewhere than 0 does.
  constexpr Row kRows[] = {
      {4.0827197432518005, -0.009999999776482582, 0.04109147936105728, 4.2831467390060425, -0.006714630872011185,
       1.4021992683410645e-05},
      {4.0827197432518005, -0.009999999776482582, 1.4020132115800943e-05, 4.4895230531692505, -0.0067920926958322525,
       1.8189894035458565e-12},
      {4.0827197432518005, -0.009999999776482582, 1.4020132115800944e-06, 4.242268323898315, -0.00769052654504776, 0},
  };
  for (const Row& row : kRows) {
    const LinePoint from = {0, row.first_value, at::zeros({1}), row.first_slope};
    const LinePoint to = {row.t, row.value, at::zeros({1}), row.slope};
    CHECK(minimum_of_cubic(from, to, 0, row.t) == row.expected);
  }
}
