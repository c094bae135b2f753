#pragma once

#include <memory>
#include <optional>

#include "registry/kinds/comm_hook.h"
#include "runner/distributed/parallel_model.h"
#include "runner/distributed/process_group.h"

namespace trainrun {

struct DataParallelOptions {
  int64_t bucket_cap_mb = 25;
  bool find_unused_parameters = false;
};

/// Which gradients travel together: numbers of `parameters`, in the order in which buckets are ready. `bucket_cap_mb`:
/// of all but the first, which is small so that communication begins early.
std::vector<std::vector<size_t>> gradient_buckets(const Tensors& parameters, int64_t bucket_cap_mb);

/// Every rank has the whole model: they begin with rank 0's values, and gradients become their mean over ranks in
/// buckets while the backward pass goes on (c10d::Reducer, as DistributedDataParallel uses it; Li et al. 2020, "PyTorch
/// Distributed"). Within a window gradients stay local.
class DataParallel : public ParallelModel {
 public:
  /// `parameters`: those with gradients; `buffers`: broadcast from rank 0 before each synchronized forward pass;
  /// `hook`: null for plain sums. Throws DistributedError where the ranks' models differ in shape.
  DataParallel(ProcessGroup& group, NamedTensors parameters, Tensors buffers, const DataParallelOptions& options,
               std::unique_ptr<CommHook> hook);
  ~DataParallel() override;

  void prepare_forward(bool synchronize) override;
  void prepare_backward(bool synchronize, const at::Tensor& loss) override;
  void share_buffers() override;
  NamedTensors parameters() const override { return parameters_; }
  NamedTensors hook_state() override;
  void load_hook_state(const NamedTensors& state) override;

 private:
  struct State;
  void share_buckets();
  ProcessGroup& group_;
  NamedTensors parameters_;
  std::unique_ptr<State> state_;
};

}  // namespace trainrun
