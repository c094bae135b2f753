#include "registry/components/optimizers/line_search.h"

#include <vector>

#include "tests/doctest.h"

using namespace trainrun;  // NOLINT(google-build-using-namespace)

namespace {

TorchNumber float32(double value) { return {value, TorchNumber::Kind::kFloat32}; }

}  // namespace

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
    const LinePoint from = {0, row.first_value, {}, float32(row.first_slope)};
    const LinePoint to = {row.t, row.value, {}, float32(row.slope)};
    CHECK(minimum_of_cubic(from, to, 0, row.t).value() == row.expected);
  }
}

TEST_CASE("a step that is at an end of the bracket but for the rounding to float32 is moved inwards, as in PyTorch") {
  // What torch.optim.lbfgs._strong_wolfe of torch 2.11 saw in a net with dropout (seed 2342 of random_nets_test.py), and
  // the steps that it tried. The cubic between the first two has its minimum at float32(0.025), above the double 0.025.
  struct Look {
    double t, value, slope;
  };
  constexpr Look kLooks[] = {
      {0.025, 0.89034014940261841, -6.4836174715310335e-05},
      {0.02525, 0.90825259685516357, -5.7306235248688608e-05},
      {0.025025, 0.915427565574646, -5.5599004554096609e-05},
      {0.0250025, 0.92134356498718262, -5.4312444262905046e-05},
  };
  const LinePoint start = {0, 0.8962099552154541, {}, float32(-6.6719279857352376e-05)};
  std::vector<double> tried;
  const auto evaluate = [&](TorchNumber t) {
    REQUIRE(tried.size() < std::size(kLooks));
    const Look& look = kLooks[tried.size()];
    tried.push_back(t.value());
    return LinePoint{t, look.value, {}, float32(look.slope)};
  };
  int64_t num_evaluations = 0;
  const LinePoint end = strong_wolfe(evaluate, start, 0.025, float32(9.13208642e-05), 1e-9, 4, num_evaluations);
  REQUIRE(num_evaluations == 4);
  for (size_t i = 0; i < std::size(kLooks); ++i) CHECK(tried[i] == doctest::Approx(kLooks[i].t).epsilon(1e-12));
  CHECK(end.t.value() == 0.025);
}

TEST_CASE("numbers are rounded as PyTorch rounds Python floats and tensors without dimensions") {
  const TorchNumber bound = 0.025;
  CHECK(float32(0.025).value() > bound.value());
  CHECK(float32(0.025) <= bound);  // torch.tensor(0.025) <= 0.025
  CHECK((bound - bound * 0.1).value() == 0.025 - 0.025 * 0.1);
  CHECK((float32(0.1) + 0.2).value() == 0.1f + 0.2f);
  CHECK(3 / 1.1f != (1 / 1.1f) * 3);
  CHECK((3 / float32(1.1)).value() == (1 / 1.1f) * 3);  // Tensor.__rtruediv__ multiplies by the reciprocal
  CHECK((float32(3) / 1.1).value() == 3 / 1.1f);
  const TorchNumber wide = {0.1, TorchNumber::Kind::kFloat64};
  CHECK((wide + 0.2).value() == 0.1 + 0.2);
}
