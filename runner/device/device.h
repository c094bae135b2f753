#pragma once

#include <c10/core/Device.h>
#include <c10/util/intrusive_ptr.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "runner/recipe/choices.h"

namespace c10d {
class Backend;
class Store;
}  // namespace c10d

namespace trainrun {

/// The GPUs of this machine, as libtrainrun_cuda.so knows them. That library brings LibTorch's CUDA side along; it is
/// never linked, only opened where there is a GPU. What LibTorch does alike for every device (seeds, random states,
/// streams, pinned memory) is not repeated here.
class Accelerator {
 public:
  struct Gpu {
    std::string name;                // "NVIDIA H100 80GB HBM3"
    int64_t memory = 0;              // bytes
    std::string compute_capability;  // "9.0"
  };
  virtual ~Accelerator() = default;

  /// Those that CUDA_VISIBLE_DEVICES leaves; 0 where there is no driver.
  virtual int64_t num_gpus() const = 0;
  virtual Gpu describe(int64_t gpu) const = 0;
  /// "CUDA 13.0, cuDNN 9.19.0, NCCL 2.28.9"
  virtual std::string versions() const = 0;
  /// NCCL between the ranks, each with a GPU of its own; connected when this returns. Throws where a rank does not come
  /// within `timeout`; a collective that takes longer ends the process. Collective.
  virtual c10::intrusive_ptr<c10d::Backend> connect(const c10::intrusive_ptr<c10d::Store>& store, int rank,
                                                    int world_size, at::Device device,
                                                    std::chrono::milliseconds timeout) const = 0;
};

/// What came of opening the library.
struct OpenedAccelerator {
  const Accelerator* accelerator = nullptr;  // lives as long as the process; null: there is none
  std::string missing;                       // what is missing then, for errors: "there is no NVIDIA GPU (…)"

  int64_t num_gpus() const { return accelerator ? accelerator->num_gpus() : 0; }
};

/// Whether this process may use a GPU: there is a device file, and CUDA_VISIBLE_DEVICES does not hide all. Opens
/// nothing.
bool sees_gpu();

/// The accelerator of this process; the first call opens the library, if sees_gpu().
const OpenedAccelerator& open_accelerator();
/// The same from the library `path`, whether or not a GPU is seen.
OpenedAccelerator open_accelerator(const std::string& path);

/// Opens the accelerator if the recipe at `path`, with `overrides`, may train on a GPU that is seen. To be called
/// before the first operation: LibTorch asks once in a process whether it has CUDA, and keeps the answer.
void prepare_device(const std::string& path, const std::vector<std::string>& overrides);

/// What a recipe and whoever started this process say of where to compute.
struct DeviceWish {
  DeviceChoice device;
  DistributedType distributed_type = DistributedType::kNo;
  int64_t local_rank = 0;  // among the processes of this machine
  int64_t world_size = 1;
};

/// Where to compute: with `auto` on a GPU where there is one, each process of a machine on its own. Throws Error where
/// a GPU is wanted that is not there, or that several processes would share; it says what is missing and what to write.
at::Device choose_device(const DeviceWish& wish);
at::Device choose_device(const DeviceWish& wish, const OpenedAccelerator& opened);

/// Makes `device` the one that this thread's operations go to; `tf32`: its float32 products may be rounded to
/// TensorFloat-32. On the CPU there is nothing to do.
void use_device(at::Device device, bool tf32);
/// "cpu", or "cuda:0 (NVIDIA H100 80GB HBM3)".
std::string device_name(at::Device device);
/// Of the GPU `device`: bytes that nobody uses, and the most that this process has had in tensors.
int64_t free_memory(at::Device device);
int64_t peak_memory(at::Device device);

}  // namespace trainrun
