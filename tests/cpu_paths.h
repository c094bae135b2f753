#pragma once

#include <vector>

#include "registry/kernels/cpu_path.h"

namespace trainrun::test {

/// The paths of this processor that have vectors, for kernels that the generic one does not use.
inline std::vector<kernels::CpuPath> vector_paths() {
  std::vector<kernels::CpuPath> paths = kernels::available_cpu_paths();
  paths.erase(paths.begin());
  return paths;
}

}  // namespace trainrun::test
