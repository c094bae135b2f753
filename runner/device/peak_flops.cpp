#include "runner/device/peak_flops.h"

#include <array>

namespace trainrun {
namespace {

struct Peak {
  const char* name;  // how the driver's name begins
  double half;       // bfloat16 and float16, added up in float32; all in 1e12 FLOP/s, without sparsity
  double tf32;
  double single;
};

// From NVIDIA's data sheets. Of two that begin alike, the longer comes first.
constexpr std::array kPeaks = {
    Peak{"NVIDIA H100 PCIe", 756, 378, 51},
    Peak{"NVIDIA H100 NVL", 835, 417.5, 60},
    Peak{"NVIDIA H100", 989, 494.5, 67},
    Peak{"NVIDIA H200 NVL", 835, 417.5, 60},
    Peak{"NVIDIA H200", 989, 494.5, 67},
    Peak{"NVIDIA A100", 312, 156, 19.5},
    Peak{"NVIDIA L40S", 362, 183, 91.6},
    Peak{"NVIDIA L4", 121, 60, 30.3},
    Peak{"NVIDIA A10G", 70, 35, 31.5},
    Peak{"NVIDIA A10", 125, 62.5, 31.2},
    Peak{"NVIDIA GeForce RTX 4090", 165.2, 82.6, 82.6},
    Peak{"NVIDIA GeForce RTX 3090", 71, 35.6, 35.6},
};

/// Whether `name` begins with `model`, and not with a longer one such as A100 for A10.
bool is_model(const std::string& name, const std::string& model) {
  if (!name.starts_with(model)) return false;
  return name.size() == model.size() || name[model.size()] == ' ' || name[model.size()] == '-';
}

}  // namespace

std::optional<double> peak_flops(const std::string& name, MixedPrecision precision, bool tf32) {
  for (const Peak& peak : kPeaks) {
    if (!is_model(name, peak.name)) continue;
    if (precision == MixedPrecision::kFp8) return std::nullopt;
    const double tera = precision != MixedPrecision::kNo ? peak.half : tf32 ? peak.tf32 : peak.single;
    return tera * 1e12;
  }
  return std::nullopt;
}

}  // namespace trainrun
