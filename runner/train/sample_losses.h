#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdio>
#include <string>
#include <vector>

#include "registry/components/callbacks/sample_losses.h"
#include "registry/kinds/batch.h"
#include "runner/train/occasion.h"

namespace trainrun {

/// Where the losses of an epoch are written in the run's folder: "sample_losses/epoch-0003.safetensors".
inline std::string sample_loss_file(int64_t epoch) {
  std::array<char, 64> name{};
  std::snprintf(name.data(), name.size(), "sample_losses/epoch-%04lld.safetensors", static_cast<long long>(epoch));
  return name.data();
}

/// The losses of single samples, as training computes them: each with the weights before its step. At the end of an epoch
/// rank 0 writes `loss` [N] float32, the mean of what a sample of the data set gave in that epoch, NaN for one that did
/// not come. (run_sample_losses.cpp)
class SampleLossAccount : public SampleLossBook {
 public:
  /// Of a batch of training. Counts once the step is done.
  virtual void add(const Batch& batch, const std::vector<at::Tensor>& outputs, const Occasion& occasion) = 0;
};

}  // namespace trainrun
