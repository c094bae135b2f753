#pragma once

#include <string>
#include <vector>

namespace trainrun::kernels {

/// Which instructions a kernel is computed with. Where sums are in another order, results differ in the last bits.
enum class CpuPath { kGeneric, kAvx2, kAvx512 };

/// Whether this processor has the instructions of `path`. AVX-512 means F, BW, DQ and VL together, AVX2 FMA too.
bool is_available(CpuPath path);
/// The widest path that this processor has, and that the environment variable ATEN_CPU_CAPABILITY (default, avx2,
/// avx512), which LibTorch reads too, allows; asked once, then remembered.
CpuPath best_cpu_path();
/// Every path that this processor has, kGeneric first.
std::vector<CpuPath> available_cpu_paths();
/// "generic", "AVX2", "AVX-512".
std::string name_of(CpuPath path);

}  // namespace trainrun::kernels
