#pragma once

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <vector>

#include "registry/kinds/communicator.h"
#include "runner/distributed/shared_memory.h"

namespace trainrun {

/// What c10d's groups ask of the ranks' common memory. What is not done there (messages from one rank to another, sums
/// of types that are not added there) goes to another backend, of the same ranks.
class SharedBackend : public c10d::Backend {
 public:
  using Tensors = std::vector<at::Tensor>;
  using WorkPointer = c10::intrusive_ptr<c10d::Work>;

  SharedBackend(std::shared_ptr<SharedMemory> memory, c10::intrusive_ptr<c10d::Backend> other);
  const std::string getBackendName() const override { return "shared memory"; }
  SharedMemory& memory() { return *memory_; }

  /// Begins to replace `tensor` by its mean over ranks. The futures of all that were begun are complete when the call
  /// that is the last of them returns.
  FutureTensor start_mean(const at::Tensor& tensor, bool is_last);

  WorkPointer allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) override;
  WorkPointer broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) override;
  WorkPointer allgather(std::vector<Tensors>& outputs, Tensors& inputs, const c10d::AllgatherOptions& options) override;
  WorkPointer _allgather_base(at::Tensor& output, at::Tensor& input, const c10d::AllgatherOptions& options) override;
  WorkPointer _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                   const c10d::ReduceScatterOptions& options) override;
  WorkPointer barrier(const c10d::BarrierOptions& options) override;
  WorkPointer send(Tensors& tensors, int destination, int tag) override {
    return other_->send(tensors, destination, tag);
  }
  WorkPointer recv(Tensors& tensors, int source, int tag) override { return other_->recv(tensors, source, tag); }

 private:
  WorkPointer waiting_for(uint32_t call);

  std::shared_ptr<SharedMemory> memory_;
  c10::intrusive_ptr<c10d::Backend> other_;
};

}  // namespace trainrun
