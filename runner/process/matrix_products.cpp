// Lets MKL use all that an AMD processor can do.
//
// MKL, which computes LibTorch's matrix products in float32 and float64, asks mkl_serv_intel_cpu_true() whether the
// processor is Intel's. Where it is not, MKL keeps to AVX2 even if the processor has AVX-512: on a Zen 5 a product then
// takes 2.2 times as long. The dynamic loader takes the definition here before that in libtorch_cpu.so; it answers as
// MKL's own would until `use_all_of_amd` is called. Which kernels MKL chooses then is still decided by what the
// processor says it can do.
#include "runner/process/matrix_products.h"

#include <dlfcn.h>

#include <atomic>
#include <cstdlib>

#include "registry/kernels/half_product.h"
#include "registry/kernels/own_products.h"

namespace trainrun {
namespace {

bool is_amd() {
  __builtin_cpu_init();
  return __builtin_cpu_is("amd") != 0 && __builtin_cpu_supports("avx2") != 0;
}

/// Whether who runs the program wants MKL as it is, so that numbers are those of Python's PyTorch to the last bit.
bool is_left_alone() { return std::getenv("TRAINRUN_PLAIN_MKL") != nullptr; }

std::atomic<bool> acts_as_intel = false;
std::atomic<bool> was_asked = false;

/// What MKL itself says.
int own_answer() {
  using Answer = int (*)();
  const auto own = reinterpret_cast<Answer>(dlsym(RTLD_NEXT, "mkl_serv_intel_cpu_true"));
  return own ? own() : 0;
}

}  // namespace

std::string use_all_of_amd() {
  if (!is_amd()) return "the processor is not AMD's, or has no AVX2";
  if (is_left_alone()) return "TRAINRUN_PLAIN_MKL is set";
  if (was_asked && !acts_as_intel) return "MKL has asked before";
  acts_as_intel = true;
  return "";
}

std::string use_own_products() {
  if (!is_amd()) return "measured on AMD's processors alone";
  if (is_left_alone()) return "TRAINRUN_PLAIN_MKL is set";
  kernels::use_own_products(true);
  return "";
}

std::string use_float32_for_halves() {
  return is_left_alone() ? "TRAINRUN_PLAIN_MKL is set" : kernels::multiply_halves_in_float32();
}

std::string matrix_products_text() {
  if (!is_amd()) return "MKL";
  if (acts_as_intel) return "MKL, as on Intel's processors";
  return std::string("MKL, which keeps to AVX2 here") + (is_left_alone() ? " (TRAINRUN_PLAIN_MKL)" : "");
}

}  // namespace trainrun

// NOLINTBEGIN(readability-identifier-naming): MKL's name
extern "C" __attribute__((visibility("default"))) int mkl_serv_intel_cpu_true() {
  trainrun::was_asked = true;
  if (trainrun::acts_as_intel) return 1;
  return trainrun::own_answer();
}
// NOLINTEND(readability-identifier-naming)
