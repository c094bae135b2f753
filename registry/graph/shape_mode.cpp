#include "registry/graph/shape_mode.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/library.h>

#include <atomic>
#include <functional>
#include <memory>
#include <set>

#include "registry/graph/outside_shape_mode.h"
#include "registry/graph/shape_functions.h"
#include "registry/language/error.h"

// A dispatcher mode on a key that nothing else uses. Whatever makes a tensor makes it on the meta device; an operation
// without a meta kernel in C++ has a shape function of ours (shape_functions.h), or is run on zeros on the CPU, one
// operation at a time.

namespace trainrun {
namespace {

constexpr auto kModeKey = c10::DispatchKey::TESTING_ONLY_GenericMode;

std::atomic<bool> is_installed = false;
thread_local int depth = 0;
thread_local std::map<std::string, int64_t> bytes_computed;
thread_local std::set<std::string> without_meta_kernel;

using torch::jit::Stack;
using TensorMap = std::function<at::Tensor(const at::Tensor&)>;

c10::IValue map_tensors(const c10::IValue& value, const TensorMap& map) {
  if (value.isTensor()) return value.toTensor().defined() ? c10::IValue(map(value.toTensor())) : value;
  if (value.isTensorList()) {
    c10::List<at::Tensor> list;
    for (at::Tensor tensor : value.toTensorList()) list.push_back(tensor.defined() ? map(tensor) : tensor);
    return list;
  }
  if (value.isList() && value.toList().elementType()->kind() == c10::TypeKind::OptionalType) {
    const auto in = value.toList();
    auto out = c10::impl::GenericList(in.elementType());
    for (c10::IValue item : in) out.push_back(item.isTensor() ? c10::IValue(map(item.toTensor())) : item);
    return out;
  }
  return value;
}

/// Multiplications and additions of matrix products; convolutions count their own.
void count_products(const std::string& name, const std::vector<c10::IValue>& args) {
  const auto sizes = [&](size_t i) { return args[i].toTensor().sizes(); };
  if (name == "aten::mm" || name == "aten::addmm") {
    const size_t first = name == "aten::mm" ? 0 : 1;
    count_flops(2 * num_elements(sizes(first)) * sizes(first + 1).back());
  } else if (name == "aten::bmm" || name == "aten::baddbmm") {
    const size_t first = name == "aten::bmm" ? 0 : 1;
    count_flops(2 * num_elements(sizes(first)) * sizes(first + 1).back());
  }
}

/// "aten::where.self"; "aten::convolution", which has no overloads.
std::string name_of(const c10::OperatorHandle& op) {
  const auto& schema = op.schema();
  return schema.overload_name().empty() ? schema.name() : schema.name() + "." + schema.overload_name();
}

void run_on_zeros(const c10::OperatorHandle& op, const std::vector<c10::IValue>& args, Stack* stack) {
  const c10::AutoGradMode no_gradients(false);
  const auto& schema = op.schema().arguments();
  const size_t base = stack->size();
  int64_t& bytes = bytes_computed[name_of(op)];
  const auto zeros = [&](const at::Tensor& tensor) {
    bytes += static_cast<int64_t>(tensor.nbytes());
    return tensor.device().is_meta() ? at::zeros(tensor.sizes(), tensor.options().device(c10::kCPU)) : tensor;
  };
  for (size_t i = 0; i < args.size(); ++i) {
    stack->push_back(schema[i].name() == "device" ? c10::IValue(c10::Device(c10::kCPU)) : map_tensors(args[i], zeros));
  }
  op.callBoxed(stack);
  for (size_t i = base; i < stack->size(); ++i) {
    (*stack)[i] = map_tensors((*stack)[i], [&](const at::Tensor& tensor) {
      bytes += static_cast<int64_t>(tensor.nbytes());
      return at::empty_strided(tensor.sizes(), tensor.strides(), tensor.options().device(c10::kMeta));
    });
  }
}

void on_meta(const c10::OperatorHandle& op, c10::DispatchKeySet, Stack* stack) {
  const auto& schema = op.schema().arguments();
  const size_t base = stack->size() - schema.size();
  const std::vector<c10::IValue> args(stack->begin() + static_cast<std::ptrdiff_t>(base), stack->end());
  const std::string& name = op.schema().name();
  count_products(name, args);
  const std::string full_name = name_of(op);
  if (const ShapeFunction shape_of = find_shape_function(full_name)) {
    stack->resize(base);
    shape_of(args, stack);
    return;
  }
  if (op.hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd)) {
    op.callBoxedForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd, *stack);  // its parts come here one by one
    return;
  }
  const c10::impl::ExcludeDispatchKeyGuard once(kModeKey);
  if (without_meta_kernel.contains(full_name)) {  // an exception of LibTorch's costs a millisecond
    stack->resize(base);
    return run_on_zeros(op, args, stack);
  }
  for (size_t i = 0; i < schema.size(); ++i) {
    if (schema[i].name() == "device") (*stack)[base + i] = c10::Device(c10::kMeta);
  }
  try {
    op.callBoxed(stack);
  } catch (const c10::NotImplementedError&) {
    without_meta_kernel.insert(full_name);
    stack->resize(base);
    run_on_zeros(op, args, stack);
  }
}

}  // namespace

void install_shape_mode() {
  // Never taken back: LibTorch's operators may outlive any order of destructors.
  [[maybe_unused]] static const torch::Library* const library = [] {
    auto made = std::make_unique<torch::Library>(torch::Library::IMPL, "_", kModeKey, __FILE__, __LINE__);
    made->fallback(torch::CppFunction::makeFromBoxedFunction<&on_meta>());
    is_installed = true;
    return made.release();
  }();
}

struct ShapeMode::State {
  c10::impl::IncludeDispatchKeyGuard mode{kModeKey};
  at::Tensor generator_state;
};

ShapeMode::ShapeMode() {
  if (!is_installed) throw Error("the shape mode is not installed; call install_library_changes first");
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  at::Tensor saved;
  if (depth == 0) {
    const std::lock_guard<std::mutex> lock(generator.mutex());
    saved = generator.get_state();
  }
  state_ = std::make_unique<State>();
  state_->generator_state = std::move(saved);
  ++depth;
}

ShapeMode::~ShapeMode() {
  --depth;
  const at::Tensor saved = state_->generator_state;
  state_.reset();
  if (!saved.defined()) return;
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  const std::lock_guard<std::mutex> lock(generator.mutex());
  generator.set_state(saved);
}

bool ShapeMode::active() { return depth > 0; }

struct OutsideShapeMode::Guard {
  c10::impl::ExcludeDispatchKeyGuard excluded{kModeKey};
};

OutsideShapeMode::OutsideShapeMode() : guard_(std::make_unique<Guard>()) {}
OutsideShapeMode::~OutsideShapeMode() = default;

int64_t ShapeMode::flops() { return flops_counted(); }
const std::map<std::string, int64_t>& ShapeMode::computed() { return bytes_computed; }

}  // namespace trainrun
