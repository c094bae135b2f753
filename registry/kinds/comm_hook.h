#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "registry/kinds/communicator.h"
#include "registry/language/registry.h"
#include "registry/tensors/named_tensors.h"

namespace trainrun {

/// Gradients that are reduced together.
struct GradientBucket {
  int64_t index = 0;                  // 0 for the first one that is ready in each backward pass
  at::Tensor values;                  // [n]: all gradients of the bucket; may be written
  std::vector<at::Tensor> gradients;  // the same memory, in the parameters' shapes
  bool is_last = false;               // of this backward pass
};

/// How gradients become their mean over ranks, between the backward pass and the network. Source: PyTorch's DDP
/// communication hooks.
class CommHook {
 public:
  virtual ~CommHook() = default;
  /// Begins the reduction of a bucket, on a thread of the backward pass. The future completes with the mean of
  /// `bucket.values` over ranks, in their dtype and shape.
  virtual FutureTensor reduce(const GradientBucket& bucket, Communicator& ranks) = 0;
  /// The tensors that this rank needs after a resume, by name; every rank has the same names and shapes.
  virtual NamedTensors state() { return {}; }
  virtual void load_state(const NamedTensors& state) { static_cast<void>(state); }
};

struct CommHookInputs {
  int64_t world_size = 1;
};

struct CommHookKind {
  static constexpr const char* kName = "comm_hook";
  using Inputs = CommHookInputs;
  using Product = std::unique_ptr<CommHook>;
  using Common = NoCommon;
};
using CommHookRegistry = Registry<CommHookKind>;
const CommHookRegistry& registry_of(const Catalog& catalog, CommHookKind);

}  // namespace trainrun
