#include "runner/process/torch_settings.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>

#include <cstdlib>

namespace trainrun {

void compute_deterministically() {
  at::globalContext().setDeterministicAlgorithms(true, false);
  at::globalContext().setDeterministicFillUninitializedMemory(false);  // it costs time and changes no result
  setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8", 0);                     // or cuBLAS may add up in any order
}

void set_threads_of_operations(int64_t number) { at::set_num_threads(static_cast<int>(number)); }

void allow_tf32(bool allowed) {
  at::globalContext().setAllowTF32CuBLAS(allowed);
  at::globalContext().setAllowTF32CuDNN(allowed);  // LibTorch's own default lets convolutions round, products not
}

}  // namespace trainrun
