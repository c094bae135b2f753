#include "runner/device/device.h"

#include <ATen/core/Tensor.h>

#include <cstdlib>

#include "registry/language/error.h"
#include "tests/doctest.h"

namespace trainrun {
namespace {

class ImaginedGpus : public Accelerator {
 public:
  explicit ImaginedGpus(int64_t number) : number_(number) {}
  int64_t num_gpus() const override { return number_; }
  Gpu describe(int64_t) const override { return {}; }
  std::string versions() const override { return ""; }
  c10::intrusive_ptr<c10d::Backend> connect(const c10::intrusive_ptr<c10d::Store>&, int, int, at::Device,
                                            std::chrono::milliseconds) const override {
    throw Error("these GPUs are imagined");
  }

 private:
  int64_t number_;
};

DeviceChoice device(const char* text) { return DeviceChoice::parse(text).value(); }

std::string chosen(const DeviceWish& wish, int64_t num_gpus) {
  const ImaginedGpus gpus(num_gpus);
  const OpenedAccelerator opened =
      num_gpus > 0 ? OpenedAccelerator{&gpus, ""} : OpenedAccelerator{nullptr, "there is none"};
  return choose_device(wish, opened).str();
}

std::string refusal(const DeviceWish& wish, int64_t num_gpus) {
  try {
    return "chose " + chosen(wish, num_gpus);
  } catch (const Error& error) {
    return error.what();
  }
}

}  // namespace

TEST_CASE("without a wish a GPU is taken where there is one") {
  CHECK(chosen({}, 2) == "cuda:0");
  CHECK(chosen({}, 0) == "cpu");
  CHECK(chosen({device("cpu")}, 2) == "cpu");
  CHECK(chosen({device("cuda")}, 2) == "cuda:0");
  CHECK(chosen({device("cuda:1")}, 2) == "cuda:1");
}

TEST_CASE("each process of a machine takes a GPU of its own, with MULTI_CPU none") {
  for (const DistributedType type : {DistributedType::kMultiGpu, DistributedType::kFsdp}) {
    CHECK(chosen({device("auto"), type, 0, 4}, 2) == "cuda:0");
    CHECK(chosen({device("cuda"), type, 1, 4}, 2) == "cuda:1");
  }
  CHECK(chosen({device("auto"), DistributedType::kFsdp, 1, 2}, 0) == "cpu");
  CHECK(chosen({device("auto"), DistributedType::kMultiCpu, 5, 6}, 2) == "cpu");
}

TEST_CASE("a GPU that is not there is an error that says what is missing and what to write") {
  CHECK(refusal({device("cuda")}, 0) == "device: cuda needs a GPU: there is none; device: cpu trains on the CPU");
  CHECK(refusal({device("auto"), DistributedType::kMultiGpu}, 0) ==
        "distributed_type: MULTI_GPU needs GPUs: there is none; distributed_type: MULTI_CPU trains on the CPU");
  CHECK(refusal({device("cuda:2")}, 2) == "device: cuda:2 does not exist: there are 2, the first is cuda:0");
  CHECK(refusal({device("auto"), DistributedType::kMultiGpu, 1, 2}, 1) ==
        "process 2 of this machine finds no GPU: there is 1; start as many processes on each machine as it has GPUs, "
        "or write "
        "device: cpu and distributed_type: MULTI_CPU");
  CHECK(refusal({device("cuda:0"), DistributedType::kMultiGpu, 1, 2}, 4) ==
        "device: cuda:0 is one GPU, and several processes of this machine would share it; write device: cuda, and each "
        "takes its own");
}

TEST_CASE("a library that is not there is no accelerator, and says how to get one") {
  const OpenedAccelerator opened = open_accelerator("/nowhere/libtrainrun_cuda.so");
  CHECK(opened.accelerator == nullptr);
  CHECK(opened.missing.find("there is no /nowhere/libtrainrun_cuda.so") != std::string::npos);
  CHECK(opened.missing.find("tools/setup") != std::string::npos);
}

// Run by tests/gpu/library_gpu_test.py, which knows where NVIDIA's libraries are.
TEST_CASE("the CUDA library opens" * doctest::skip()) {
  const OpenedAccelerator opened = open_accelerator(std::getenv("TRAINRUN_CUDA_LIBRARY"));
  if (sees_gpu()) {
    REQUIRE(opened.accelerator != nullptr);
    CHECK(opened.num_gpus() > 0);
    CHECK(!opened.accelerator->describe(0).name.empty());
    CHECK(opened.accelerator->versions().starts_with("CUDA "));
  } else {
    CHECK(opened.missing == "the NVIDIA driver finds no GPU (nvidia-smi says more)");  // it was asked
  }
}

}  // namespace trainrun
