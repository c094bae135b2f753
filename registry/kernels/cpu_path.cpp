#include "registry/kernels/cpu_path.h"

#include <cstdlib>
#include <string_view>

namespace trainrun::kernels {

bool is_available(CpuPath path) {
  switch (path) {
    case CpuPath::kGeneric:
      return true;
#if defined(__x86_64__)
    case CpuPath::kAvx2:
      return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    case CpuPath::kAvx512:
      return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
             __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
#endif
    default:
      return false;
  }
}

std::vector<CpuPath> available_cpu_paths() {
  std::vector<CpuPath> paths;
  for (const CpuPath path : {CpuPath::kGeneric, CpuPath::kAvx2, CpuPath::kAvx512}) {
    if (is_available(path)) paths.push_back(path);
  }
  return paths;
}

namespace {

/// As LibTorch reads it for its own kernels; what it does not know changes nothing.
CpuPath widest_wanted() {
  const char* const wanted = std::getenv("ATEN_CPU_CAPABILITY");
  if (wanted == nullptr) return CpuPath::kAvx512;
  const std::string_view name = wanted;
  return name == "default" ? CpuPath::kGeneric : name == "avx2" ? CpuPath::kAvx2 : CpuPath::kAvx512;
}

CpuPath best_of(const std::vector<CpuPath>& paths, CpuPath widest) {
  CpuPath best = CpuPath::kGeneric;
  for (const CpuPath path : paths) {
    if (path <= widest) best = path;
  }
  return best;
}

}  // namespace

CpuPath best_cpu_path() {
  static const CpuPath best = best_of(available_cpu_paths(), widest_wanted());
  return best;
}

std::string name_of(CpuPath path) {
  switch (path) {
    case CpuPath::kAvx2:
      return "AVX2";
    case CpuPath::kAvx512:
      return "AVX-512";
    default:
      return "generic";
  }
}

}  // namespace trainrun::kernels
