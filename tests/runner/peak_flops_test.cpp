#include "runner/device/peak_flops.h"

#include "tests/doctest.h"

namespace trainrun {

TEST_CASE("the peak of a GPU is that of its model and of the recipe's precision") {
  const auto peak = [](const std::string& name, MixedPrecision precision, bool tf32 = false) {
    return peak_flops(name, precision, tf32).value_or(0) / 1e12;
  };
  CHECK(peak("NVIDIA H100 80GB HBM3", MixedPrecision::kBf16) == 989);
  CHECK(peak("NVIDIA H100 80GB HBM3", MixedPrecision::kNo) == 67);
  CHECK(peak("NVIDIA H100 80GB HBM3", MixedPrecision::kNo, true) == 494.5);
  CHECK(peak("NVIDIA H100 PCIe", MixedPrecision::kFp16) == 756);
  CHECK(peak("NVIDIA A100-SXM4-80GB", MixedPrecision::kBf16) == 312);
  CHECK(peak("NVIDIA A10", MixedPrecision::kBf16) == 125);
  CHECK(peak("NVIDIA A10G", MixedPrecision::kBf16) == 70);
  CHECK(peak("NVIDIA L4", MixedPrecision::kBf16) == 121);
  CHECK(peak("NVIDIA L40S", MixedPrecision::kBf16) == 362);
  CHECK(peak("NVIDIA L400", MixedPrecision::kBf16) == 0);
  CHECK(peak("Some other GPU", MixedPrecision::kBf16) == 0);
}

}  // namespace trainrun
