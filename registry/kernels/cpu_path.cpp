#include "registry/kernels/cpu_path.h"

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

CpuPath best_cpu_path() {
  static const CpuPath best = available_cpu_paths().back();
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
