#include "runner/device/device.h"

#include <ATen/Context.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <dlfcn.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <filesystem>

#include "registry/data/data_files.h"
#include "registry/language/error.h"
#include "runner/process/torch_settings.h"
#include "runner/recipe/recipe_source.h"

namespace trainrun {
namespace {

namespace fs = std::filesystem;

constexpr const char* kLibrary = "libtrainrun_cuda.so";
constexpr const char* kNoGpu = "there is no NVIDIA GPU (no /dev/nvidia0)";

/// /dev/nvidia0, /dev/nvidia3: in a container perhaps not the first. WSL has /dev/dxg instead.
bool has_device_file() {
  std::error_code unreadable;
  if (fs::exists("/dev/dxg", unreadable)) return true;
  for (const auto& entry : fs::directory_iterator("/dev", unreadable)) {
    const std::string name = entry.path().filename().string();
    const bool is_gpu = name.starts_with("nvidia") && name.size() > 6 &&
                        std::all_of(name.begin() + 6, name.end(), [](unsigned char c) { return std::isdigit(c) != 0; });
    if (is_gpu) return true;
  }
  return false;
}

bool all_are_hidden() {
  const char* visible = std::getenv("CUDA_VISIBLE_DEVICES");
  if (!visible) return false;
  const std::string text = visible;
  return text.empty() || text.starts_with("-1") || text == "NoDevFiles";
}

bool wants_gpu(const DeviceWish& wish) {
  return wish.device.is_cuda() || wish.distributed_type == DistributedType::kMultiGpu;
}

bool wants_cpu(const DeviceWish& wish) {
  return wish.device.is_cpu() || wish.distributed_type == DistributedType::kMultiCpu;
}

/// "there are 2", "there is 1"
std::string there_are(int64_t number) { return number == 1 ? "there is 1" : "there are " + std::to_string(number); }

/// The text of a key of a resolved recipe, or "".
std::string text_of(const Value& recipe, const std::string& key) {
  const Value* value = recipe.is_map() ? recipe.find(key) : nullptr;
  return value && value->is_scalar() ? value->text() : "";
}

}  // namespace

bool sees_gpu() { return !all_are_hidden() && has_device_file(); }

OpenedAccelerator open_accelerator(const std::string& path) {
  std::error_code unreadable;
  if (!fs::exists(path, unreadable)) {
    return {nullptr, "this trainrun was built without its CUDA part (there is no " + path +
                         "); run tools/setup on the machine with the GPU, which fetches what it needs and builds it"};
  }
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    const char* reason = dlerror();
    return {nullptr, "the CUDA libraries cannot be opened (" + std::string(reason ? reason : path) +
                         "); run tools/setup on the machine with the GPU, which fetches them"};
  }
  auto* const get = reinterpret_cast<const Accelerator* (*)()>(dlsym(library, "trainrun_cuda_accelerator"));
  if (!get) return {nullptr, path + " was built for another trainrun; build it again"};
  const Accelerator* accelerator = get();
  if (accelerator->num_gpus() > 0) return {accelerator, ""};
  return {nullptr, "the NVIDIA driver finds no GPU (nvidia-smi says more)"};
}

const OpenedAccelerator& open_accelerator() {
  static const OpenedAccelerator opened = [] {
    if (all_are_hidden()) return OpenedAccelerator{nullptr, "CUDA_VISIBLE_DEVICES hides every GPU"};
    if (!has_device_file()) return OpenedAccelerator{nullptr, kNoGpu};
    return open_accelerator(library_beside(kLibrary));
  }();
  return opened;
}

void prepare_device(const std::string& path, const std::vector<std::string>& overrides) {
  if (!sees_gpu()) return;
  const ResolvedRecipe recipe = resolve_recipe(path, overrides);
  DeviceWish wish;
  wish.device = DeviceChoice::parse(text_of(recipe.value, "device")).value_or(DeviceChoice());
  wish.distributed_type =
      choice_of<DistributedType>(text_of(recipe.value, "distributed_type")).value_or(DistributedType::kNo);
  if (!wants_cpu(wish)) open_accelerator();
}

at::Device choose_device(const DeviceWish& wish) {
  return wants_cpu(wish) ? at::kCPU : choose_device(wish, open_accelerator());
}

at::Device choose_device(const DeviceWish& wish, const OpenedAccelerator& opened) {
  if (wants_cpu(wish)) return at::kCPU;
  const int64_t num_gpus = opened.num_gpus();
  const bool multi_gpu = wish.distributed_type == DistributedType::kMultiGpu;
  if (num_gpus == 0) {
    if (!wants_gpu(wish)) return at::kCPU;
    throw Error(
        (multi_gpu ? "distributed_type: MULTI_GPU needs GPUs: " : "device: " + wish.device.text() + " needs a GPU: ") +
        opened.missing +
        (multi_gpu ? "; distributed_type: MULTI_CPU trains on the CPU" : "; device: cpu trains on the CPU"));
  }
  if (wish.device.number) {
    const int64_t number = *wish.device.number;
    if (wish.local_rank > 0) {
      throw Error("device: " + wish.device.text() +
                  " is one GPU, and several processes of this machine would share it; write " +
                  "device: cuda, and each takes its own");
    }
    if (number >= num_gpus) {
      throw Error("device: " + wish.device.text() + " does not exist: " + there_are(num_gpus) +
                  ", the first is cuda:0");
    }
    return {at::kCUDA, static_cast<at::DeviceIndex>(number)};
  }
  if (wish.local_rank >= num_gpus) {
    throw Error("process " + std::to_string(wish.local_rank + 1) + " of this machine finds no GPU: " +
                there_are(num_gpus) + "; start as many processes on each machine as it has GPUs, or write device: cpu" +
                (multi_gpu ? " and distributed_type: MULTI_CPU" : ""));
  }
  return {at::kCUDA, static_cast<at::DeviceIndex>(wish.local_rank)};
}

void use_device(at::Device device, bool tf32) {
  if (device.is_cpu()) return;
  c10::impl::VirtualGuardImpl(device.type()).setDevice(device);
  allow_tf32(tf32);
}

std::string device_name(at::Device device) {
  if (device.is_cpu()) return "cpu";
  const Accelerator* accelerator = open_accelerator().accelerator;
  return device.str() + (accelerator ? " (" + accelerator->describe(device.index()).name + ")" : "");
}

int64_t free_memory(at::Device device) {
  return static_cast<int64_t>(at::getDeviceAllocator(device.type())->getMemoryInfo(device.index()).first);
}

int64_t peak_memory(at::Device device) {
  constexpr auto kAll = static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE);
  return at::getDeviceAllocator(device.type())->getDeviceStats(device.index()).allocated_bytes[kAll].peak;
}

}  // namespace trainrun
