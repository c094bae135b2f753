#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "registry/layer.h"
#include "runner/distributed/process_group.h"

namespace trainrun {

/// Keeps a model's copies on all ranks alike: they begin with rank 0's values, and gradients become their mean over
/// ranks in buckets while the backward pass goes on (c10d::Reducer, as DistributedDataParallel uses it; Li et al. 2020,
/// "PyTorch Distributed").
///
///   data_parallel.prepare_forward(last_of_window);
///   loss = forward(batch);
///   data_parallel.prepare_backward(last_of_window);
///   loss.backward();                                   // within a window gradients stay local
class DataParallel {
 public:
  using Named = std::vector<std::pair<std::string, at::Tensor>>;
  /// `parameters`: those with gradients; `buffers`: broadcast from rank 0 before each synchronized forward pass. Throws
  /// DistributedError where the ranks' models differ in shape.
  DataParallel(ProcessGroup& group, const Named& parameters, Tensors buffers);
  ~DataParallel();

  void prepare_forward(bool synchronize);
  void prepare_backward(bool synchronize);
  /// Rank 0's running means and counts for all: before an evaluation.
  void share_buffers();

 private:
  struct State;
  ProcessGroup& group_;
  std::unique_ptr<State> state_;
};

}  // namespace trainrun
