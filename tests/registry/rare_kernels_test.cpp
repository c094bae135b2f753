#include "registry/tensors/rare_kernels.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>

#include "tests/doctest.h"

using namespace trainrun;  // NOLINT(google-build-using-namespace)

namespace {

at::Tensor itself(const at::Tensor& x) { return x; }

bool has_kernel(c10::DispatchKey key) {
  return c10::Dispatcher::singleton().findSchemaOrThrow("trainrun_rare_test::itself", "").hasKernelForDispatchKey(key);
}

}  // namespace

TEST_CASE("rare kernels are registered when they are asked for, others at once") {
  torch::Library operators(torch::Library::DEF, "trainrun_rare_test", std::nullopt, __FILE__, __LINE__);
  operators.def("itself(Tensor x) -> Tensor");
  const auto library = [](c10::DispatchKey key) {
    return torch::Library(torch::Library::IMPL, "trainrun_rare_test", key, __FILE__, __LINE__);
  };
  torch::Library cpu = library(c10::DispatchKey::CPU);
  torch::Library tracer = library(c10::DispatchKey::Tracer);
  torch::Library quantized = library(c10::DispatchKey::QuantizedCPU);

  hold_back_rare_kernels(0, nullptr, nullptr);
  cpu.impl("itself", TORCH_FN(itself));
  tracer.impl("itself", TORCH_FN(itself));
  CHECK(end_holding_back_kernels() == 1);
  CHECK(has_kernel(c10::DispatchKey::CPU));
  CHECK_FALSE(has_kernel(c10::DispatchKey::Tracer));

  quantized.impl("itself", TORCH_FN(itself));  // none is held back any more
  CHECK(has_kernel(c10::DispatchKey::QuantizedCPU));
  CHECK_FALSE(has_kernel(c10::DispatchKey::Tracer));

  register_rare_kernels();
  CHECK(has_kernel(c10::DispatchKey::Tracer));
  register_rare_kernels();  // again: nothing is left to do
  CHECK(end_holding_back_kernels() == 0);
}
