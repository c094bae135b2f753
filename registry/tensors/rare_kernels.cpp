// Which of LibTorch's kernels are registered before main.
//
// Every TORCH_LIBRARY_IMPL of LibTorch calls torch::Library::_impl for each of its kernels. The dynamic loader takes the
// definition here before that in libtorch_cpu.so; it keeps those kernels that are rarely asked for in a list, and passes
// the others on. None is compared with its operator's schema meanwhile: both are LibTorch's own.
#include "registry/tensors/rare_kernels.h"

#include <dlfcn.h>
#include <torch/library.h>
#include <torch/version.h>

#include <string>
#include <utility>
#include <vector>

namespace trainrun {
namespace {

using torch::Library;
using Implement = Library& (*)(Library*, const char*, torch::CppFunction&&, torch::_RegisterOrVerify);

bool is_held_back = false;  // NOLINT(cppcoreguidelines-avoid-non-const-global-variables): from before main

/// A call of torch::Library::_impl that is yet to be made. LibTorch's libraries live until the process ends.
struct HeldBack {
  Library* library;
  std::string name;
  torch::CppFunction kernel;
  torch::_RegisterOrVerify verification;
};

std::vector<HeldBack>& held_back() {
  static std::vector<HeldBack> kernels;
  return kernels;
}

Implement own_implement() {
  static const auto own = reinterpret_cast<Implement>(
      dlsym(RTLD_NEXT, "_ZNR5torch7Library5_implEPKcONS_11CppFunctionENS_17_RegisterOrVerifyE"));
  return own;
}

bool is_rare(c10::DispatchKey key) {
  switch (key) {
    using enum c10::DispatchKey;
    case Tracer:
    case Functionalize:
    case FuncTorchBatched:
    case FuncTorchBatchedDecomposition:
    case FuncTorchVmapMode:
    case Batched:
    case BatchedNestedTensor:
    case VmapMode:
#if TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR < 15
    case Named:  // which later releases do not have
#endif
    case QuantizedCPU:
    case NestedTensorCPU:
    case NestedTensorMeta:
    case NestedTensorHPU:
    case AutogradNestedTensor:
    case CompositeImplicitAutogradNestedTensor:
    case AutocastXPU:
    case AutocastMPS:
    case AutocastMTIA:
    case AutocastMAIA:
      return true;
    default:
      return false;
  }
}

}  // namespace

void hold_back_rare_kernels(int, char**, char**) { is_held_back = true; }

size_t end_holding_back_kernels() {
  is_held_back = false;
  return held_back().size();
}

void register_rare_kernels() {
  for (HeldBack& one : std::exchange(held_back(), {})) {
    own_implement()(one.library, one.name.c_str(), std::move(one.kernel), one.verification);
  }
}

}  // namespace trainrun

/// In place of LibTorch's.
torch::Library& torch::Library::_impl(const char* name, CppFunction&& f, _RegisterOrVerify rv) & {
  if (trainrun::is_held_back) {
    f.schema_.reset();  // as the C++ function's type has it, which would be compared
    const auto& key = f.dispatch_key_ ? f.dispatch_key_ : dispatch_key_;  // as LibTorch's definition does
    if (key && trainrun::is_rare(*key)) {
      trainrun::held_back().push_back({this, name, std::move(f), rv});
      return *this;
    }
  }
  return trainrun::own_implement()(this, name, std::move(f), rv);
}
