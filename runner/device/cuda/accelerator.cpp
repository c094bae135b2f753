// libtrainrun_cuda.so: what needs NVIDIA's headers. Opened by runner/device/device.cpp where there is a GPU; linked to
// libtorch_cuda.so, whose kernels register themselves as it comes along.

#include <ATen/cuda/CUDAContextLight.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/cuda/CUDAFunctions.h>
#include <cuda_runtime_api.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>

#include "runner/device/device.h"

namespace trainrun {
namespace {

/// CUDA's 13010 as "13.1".
std::string cuda_version(int number) {
  return std::to_string(number / 1000) + "." + std::to_string(number % 1000 / 10);
}

/// cuDNN's 91900 as "9.19.0".
std::string cudnn_version(int64_t number) {
  return std::to_string(number / 10000) + "." + std::to_string(number % 10000 / 100) + "." +
         std::to_string(number % 100);
}

class CudaAccelerator : public Accelerator {
 public:
  int64_t num_gpus() const override { return c10::cuda::device_count(); }

  Gpu describe(int64_t gpu) const override {
    const cudaDeviceProp* properties = at::cuda::getDeviceProperties(static_cast<c10::DeviceIndex>(gpu));
    return {properties->name, static_cast<int64_t>(properties->totalGlobalMem),
            std::to_string(properties->major) + "." + std::to_string(properties->minor)};
  }

  std::string versions() const override {
    return "CUDA " + cuda_version(CUDART_VERSION) + ", cuDNN " +
           cudnn_version(at::detail::getCUDAHooks().versionRuntimeCuDNN()) + ", NCCL " + c10d::getNcclVersion();
  }

  c10::intrusive_ptr<c10d::Backend> connect(const c10::intrusive_ptr<c10d::Store>& store, int rank, int world_size,
                                            at::Device device, std::chrono::milliseconds timeout) const override {
    const auto options = c10d::ProcessGroupNCCL::Options::create();
    options->timeout = timeout;
    auto nccl = c10::make_intrusive<c10d::ProcessGroupNCCL>(c10::make_intrusive<c10d::PrefixStore>("nccl", store), rank,
                                                            world_size, options);
    nccl->setBoundDeviceId(device);
    nccl->eagerConnectSingleDevice(device);
    return nccl;
  }
};

}  // namespace
}  // namespace trainrun

extern "C" __attribute__((visibility("default"))) const trainrun::Accelerator* trainrun_cuda_accelerator() {
  static const trainrun::CudaAccelerator accelerator;
  return &accelerator;
}
