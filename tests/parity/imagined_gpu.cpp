#include "tests/parity/imagined_gpu.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/EmptyTensor.h>
#include <ATen/NativeFunctions.h>
#include <ATen/TensorOperators.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/library.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <functional>

namespace trainrun {
namespace {

const at::Device kGpu(at::kCUDA, 0);
constexpr size_t kBytes = size_t{1} << 30;
const c10::Stream kStream(c10::Stream::DEFAULT, kGpu);

std::atomic<int64_t> num_waits = 0;
std::atomic<int64_t> num_bytes_sent = 0;

class Memory : public c10::DeviceAllocator {
 public:
  bool initialized() override { return true; }
  void emptyCache(c10::MempoolId_t) override {}
  void recordStream(const c10::DataPtr&, c10::Stream) override {}
  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(c10::DeviceIndex) override { return {}; }
  void resetAccumulatedStats(c10::DeviceIndex) override {}
  void resetPeakStats(c10::DeviceIndex) override {}
  std::pair<size_t, size_t> getMemoryInfo(c10::DeviceIndex) override { return {kBytes, kBytes}; }
  c10::DataPtr allocate(size_t bytes) override {
    void* data = bytes > 0 ? std::malloc(bytes) : nullptr;
    return {data, data, &std::free, kGpu};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &std::free; }
  void copy_data(void* to, const void* from, size_t bytes) const override { std::memcpy(to, from, bytes); }
};

/// One device, one stream, on which everything is done when the call returns.
struct Guard : c10::impl::NoOpDeviceGuardImpl<at::kCUDA> {
  at::Device exchangeDevice(at::Device) const override { return kGpu; }
  at::Device getDevice() const override { return kGpu; }
  c10::Stream getStream(at::Device) const noexcept override { return kStream; }
  c10::Stream getDefaultStream(at::Device) const override { return kStream; }
  c10::Stream exchangeStream(c10::Stream) const noexcept override { return kStream; }
  void record(void**, const c10::Stream&, c10::DeviceIndex, c10::EventFlag) const override {}
  void block(void*, const c10::Stream&) const override {}
  void destroyEvent(void*, c10::DeviceIndex) const noexcept override {}
  void synchronizeEvent(void*) const override {}
  c10::Stream getStreamFromGlobalPool(at::Device, bool) const override { return kStream; }
};

struct Hooks : at::CUDAHooksInterface {
  void init() const override {}
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasCUDA() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
  c10::DeviceIndex deviceCount() const override { return 1; }
  c10::DeviceIndex getCurrentDevice() const override { return 0; }
  at::Allocator* getPinnedMemoryAllocator() const override { return at::getCPUAllocator(); }
  bool isPinnedPtr(const void*) const override { return true; }
  const at::Generator& getDefaultGenerator(c10::DeviceIndex) const override {
    return at::detail::getDefaultCPUGenerator();
  }
};

Memory& memory() {
  static Memory own;
  return own;
}

/// The same memory, as a tensor of the CPU.
at::Tensor as_cpu(const at::Tensor& tensor) {
  if (!tensor.is_cuda()) return tensor;
  return at::from_blob(tensor.data_ptr(), tensor.sizes(), tensor.strides(), at::TensorOptions(tensor.scalar_type()));
}

at::Tensor moved_to_gpu(const at::Tensor& tensor) {
  if (tensor.is_cuda()) return tensor;
  at::Tensor result = at::empty_strided(tensor.sizes(), tensor.strides(), tensor.options().device(kGpu));
  as_cpu(result).copy_(tensor);
  return result;
}

c10::IValue map_tensors(const c10::IValue& value, const std::function<at::Tensor(const at::Tensor&)>& map) {
  const auto mapped = [&](const at::Tensor& tensor) { return tensor.defined() ? map(tensor) : tensor; };
  if (value.isTensor()) return mapped(value.toTensor());
  if (value.isTensorList()) {
    c10::List<at::Tensor> list;
    for (at::Tensor tensor : value.toTensorList()) list.push_back(mapped(tensor));
    return list;
  }
  if (!value.isList() || value.toList().elementType()->kind() != c10::TypeKind::OptionalType) return value;
  auto list = c10::impl::GenericList(value.toList().elementType());
  for (c10::IValue item : value.toList()) {
    list.push_back(item.isTensor() ? c10::IValue(mapped(item.toTensor())) : item);
  }
  return list;
}

bool is_written(const c10::Argument& argument) { return argument.alias_info() && argument.alias_info()->isWrite(); }

/// Any operation: checks where its tensors are, has the CPU do it, and gives what comes of it a place on the GPU.
void on_gpu(const c10::OperatorHandle& operation, c10::DispatchKeySet, torch::jit::Stack* stack) {
  const std::vector<c10::Argument>& arguments = operation.schema().arguments();
  const std::string& name = operation.schema().name();
  const size_t base = stack->size() - arguments.size();
  const std::vector<c10::IValue> given(stack->begin() + static_cast<std::ptrdiff_t>(base), stack->end());
  for (size_t i = 0; i < given.size(); ++i) {
    c10::IValue& argument = (*stack)[base + i];
    if (argument.isDevice()) argument = at::Device(at::kCPU);
    argument = map_tensors(argument, [&](const at::Tensor& tensor) {
      TORCH_CHECK(tensor.is_cuda() || tensor.dim() == 0 || name == "aten::index", name, ": '", arguments[i].name(),
                  "' ", tensor.sizes(), " is on the CPU, others are on the GPU");
      const bool may_grow = is_written(arguments[i]) && given[i].isTensor();
      return may_grow ? as_cpu(tensor).clone(at::MemoryFormat::Preserve) : as_cpu(tensor);
    });
  }
  const std::vector<c10::IValue> done(stack->begin() + static_cast<std::ptrdiff_t>(base), stack->end());
  operation.callBoxed(stack);
  for (size_t i = 0; i < given.size(); ++i) {
    if (!is_written(arguments[i]) || !given[i].isTensor() || !given[i].toTensor().defined()) continue;
    const at::Tensor own = given[i].toTensor();
    own.resize_(done[i].toTensor().sizes());
    as_cpu(own).copy_(done[i].toTensor());
  }
  const std::vector<c10::Argument>& returns = operation.schema().returns();
  for (size_t i = 0; i < returns.size(); ++i) {
    c10::IValue& result = (*stack)[base + i];
    result = map_tensors(result, moved_to_gpu);
    for (size_t k = 0; returns[i].alias_info() && k < arguments.size(); ++k) {
      const auto* alias = arguments[k].alias_info();
      if (alias && alias->beforeSets() == returns[i].alias_info()->beforeSets()) result = given[k];
    }
  }
}

at::Tensor make_empty(at::IntArrayRef sizes, std::optional<at::ScalarType> dtype, std::optional<at::Layout>,
                      std::optional<at::Device>, std::optional<bool>, std::optional<at::MemoryFormat> format) {
  return at::detail::empty_generic(sizes, &memory(), c10::DispatchKeySet(c10::DispatchKey::CUDA),
                                   dtype.value_or(at::kFloat), format);
}

at::Tensor make_strided(at::IntArrayRef sizes, at::IntArrayRef strides, std::optional<at::ScalarType> dtype,
                        std::optional<at::Layout>, std::optional<at::Device>, std::optional<bool>) {
  return at::detail::empty_strided_generic(sizes, strides, &memory(), c10::DispatchKeySet(c10::DispatchKey::CUDA),
                                           dtype.value_or(at::kFloat));
}

void copy_counted(const at::Tensor& from, const at::Tensor& to, bool is_asynchronous) {
  if (from.is_cuda() && !to.is_cuda() && !is_asynchronous) ++num_waits;
  if (!from.is_cuda() && to.is_cuda()) num_bytes_sent += static_cast<int64_t>(from.nbytes());
  as_cpu(to).copy_(as_cpu(from));
}

at::Tensor& copy_into(at::Tensor& to, const at::Tensor& from, bool is_asynchronous) {
  copy_counted(from, to, is_asynchronous);
  return to;
}

at::Tensor copy_from(const at::Tensor& from, const at::Tensor& to, bool is_asynchronous) {
  copy_counted(from, to, is_asynchronous);
  return to;
}

void record_stream(at::Tensor&, c10::Stream) {}  // there is one stream

at::Scalar number_on_gpu(const at::Tensor& tensor) {
  ++num_waits;
  return as_cpu(tensor).item();
}

const at::Tensor& resize(const at::Tensor& tensor, at::IntArrayRef sizes, std::optional<at::MemoryFormat>) {
  if (tensor.sizes() == sizes) return tensor;  // NOLINT(bugprone-return-const-ref-from-parameter): the operator's form
  c10::StorageImpl* storage = tensor.storage().unsafeGetStorageImpl();
  const size_t bytes = static_cast<size_t>(c10::multiply_integers(sizes)) * tensor.element_size();
  if (storage->nbytes() < bytes) {
    storage->set_data_ptr_noswap(memory().allocate(bytes));
    storage->set_nbytes(bytes);
  }
  tensor.unsafeGetTensorImpl()->set_sizes_contiguous(sizes);
  return tensor;  // NOLINT(bugprone-return-const-ref-from-parameter)
}

}  // namespace

int64_t waits_for_gpu() { return num_waits; }
int64_t bytes_sent_to_gpu() { return num_bytes_sent; }

void imagine_gpu() {
  static const Guard guard;
  static const c10::impl::DeviceGuardImplRegistrar registered_guard(at::kCUDA, &guard);
  at::CUDAHooksRegistry()->Register("CUDAHooks", [](at::CUDAHooksArgs) { return std::make_unique<Hooks>(); });
  at::SetAllocator(at::kCUDA, &memory());
  static torch::Library any(torch::Library::IMPL, "_", c10::DispatchKey::CUDA, __FILE__, __LINE__);
  any.fallback(torch::CppFunction::makeFromBoxedFunction<&on_gpu>());
  static torch::Library aten(torch::Library::IMPL, "aten", c10::DispatchKey::CUDA, __FILE__, __LINE__);
  aten.impl("empty.memory_format", make_empty);
  aten.impl("empty_strided", make_strided);
  aten.impl("copy_", copy_into);
  aten.impl("record_stream", record_stream);
  aten.impl("_copy_from", copy_from);
  aten.impl("_local_scalar_dense", number_on_gpu);
  aten.impl("resize_", resize);
  aten.impl("as_strided", at::native::as_strided_tensorimpl);
  aten.impl("view", static_cast<at::Tensor (*)(const at::Tensor&, at::IntArrayRef)>(at::native::view));
  aten.impl("_reshape_alias", at::native::_reshape_alias);
  aten.impl("unfold", at::native::unfold);
}

}  // namespace trainrun
