// Lets MKL use all that an AMD processor can do.
//
// MKL, which computes LibTorch's matrix products in float32 and float64, asks mkl_serv_intel_cpu_true() whether the
// processor is Intel's. Where it is not, MKL keeps to AVX2 even if the processor has AVX-512: on a Zen 5 a product then
// takes 2.2 times as long. The dynamic loader takes the definition here before that in libtorch_cpu.so. Which kernels
// MKL chooses then is still decided by what the processor says it can do.
#include "runner/device/matrix_products.h"

#include <dlfcn.h>

#include <cstdlib>

namespace trainrun {
namespace {

bool is_amd() {
  __builtin_cpu_init();
  return __builtin_cpu_is("amd") != 0 && __builtin_cpu_supports("avx2") != 0;
}

/// Whether who runs the program wants MKL as it is, so that numbers are those of Python's PyTorch to the last bit.
bool is_left_alone() { return std::getenv("TRAINRUN_PLAIN_MKL") != nullptr; }

bool acts_as_intel() {
  static const bool acts = is_amd() && !is_left_alone();
  return acts;
}

/// What MKL itself says.
int own_answer() {
  using Answer = int (*)();
  const auto own = reinterpret_cast<Answer>(dlsym(RTLD_NEXT, "mkl_serv_intel_cpu_true"));
  return own ? own() : 0;
}

}  // namespace

std::string matrix_products_text() {
  if (!is_amd()) return "MKL";
  return is_left_alone() ? "MKL, which keeps to AVX2 here (TRAINRUN_PLAIN_MKL)" : "MKL, as on Intel's processors";
}

}  // namespace trainrun

// NOLINTBEGIN(readability-identifier-naming): MKL's name
extern "C" __attribute__((visibility("default"))) int mkl_serv_intel_cpu_true() {
  if (trainrun::acts_as_intel()) return 1;
  return trainrun::own_answer();
}
// NOLINTEND(readability-identifier-naming)
