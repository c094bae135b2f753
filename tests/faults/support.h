#pragma once

#include <ATen/ATen.h>

#include "runner/run/checkpoint_store.h"

namespace trainrun::test {

/// A checkpoint each part of which tells its step.
inline CheckpointContent content_at(int64_t step) {
  const auto value = static_cast<float>(step);
  return {
      {{"fc.weight", at::full({3, 2}, value)}}, {{"fc.weight.exp_avg", at::full({3, 2}, -value)}}, {{"step", step}}};
}

}  // namespace trainrun::test
