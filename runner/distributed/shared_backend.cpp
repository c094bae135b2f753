#include "runner/distributed/shared_backend.h"

#include <ATen/core/ivalue.h>
#include <ATen/ops/amax.h>
#include <ATen/ops/empty.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include <algorithm>

namespace trainrun {
namespace {

/// Of a call that was started.
class SharedWork : public c10d::Work {
 public:
  SharedWork(std::shared_ptr<SharedMemory> memory, uint32_t call) : memory_(std::move(memory)), call_(call) {}
  bool wait(std::chrono::milliseconds) override {
    memory_->finish(call_);
    return true;
  }

 private:
  std::shared_ptr<SharedMemory> memory_;
  uint32_t call_;
};

bool is_plain(const at::Tensor& tensor) {
  return tensor.is_cpu() && tensor.layout() == at::kStrided && tensor.is_contiguous();
}

bool are_plain(const std::vector<at::Tensor>& tensors) { return std::all_of(tensors.begin(), tensors.end(), is_plain); }

}  // namespace

SharedBackend::SharedBackend(std::shared_ptr<SharedMemory> memory, c10::intrusive_ptr<c10d::Backend> other)
    : c10d::Backend(memory->rank(), memory->world_size()), memory_(std::move(memory)), other_(std::move(other)) {}

SharedBackend::WorkPointer SharedBackend::waiting_for(uint32_t call) {
  return c10::make_intrusive<SharedWork>(memory_, call);
}

FutureTensor SharedBackend::start_mean(const at::Tensor& tensor, bool is_last) {
  auto future = c10::make_intrusive<c10::ivalue::Future>(c10::TensorType::get());
  memory_->start_sum(tensor, memory_->world_size(), [future, tensor] { future->markCompleted(tensor); });
  if (is_last) memory_->finish_all();
  return future;
}

SharedBackend::WorkPointer SharedBackend::allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) {
  const bool is_sum = options.reduceOp == c10d::ReduceOp::SUM;
  const bool is_added = SharedMemory::adds(tensors[0].scalar_type());
  if (options.reduceOp == c10d::ReduceOp::MAX && are_plain(tensors) && tensors.size() == 1) {
    const c10::AutoGradMode no_gradients(false);
    Tensors all;
    for (int r = 0; r < getSize(); ++r) all.push_back(at::empty_like(tensors[0]));
    memory_->finish(memory_->start_all_gather(all, tensors[0]));
    tensors[0].copy_(at::amax(at::stack(all), 0));
    return waiting_for(0);
  }
  if (!is_sum || !is_added || !are_plain(tensors)) return other_->allreduce(tensors, options);
  uint32_t last = 0;
  for (const at::Tensor& tensor : tensors) last = memory_->start_sum(tensor);
  return waiting_for(last);
}

SharedBackend::WorkPointer SharedBackend::broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) {
  if (!are_plain(tensors)) return other_->broadcast(tensors, options);
  uint32_t last = 0;
  for (const at::Tensor& tensor : tensors) last = memory_->start_broadcast(tensor, static_cast<int>(options.rootRank));
  return waiting_for(last);
}

SharedBackend::WorkPointer SharedBackend::allgather(std::vector<Tensors>& outputs, Tensors& inputs,
                                                    const c10d::AllgatherOptions& options) {
  const bool is_plain_here = inputs.size() == 1 && are_plain(inputs) && are_plain(outputs[0]);
  if (!is_plain_here) return other_->allgather(outputs, inputs, options);
  return waiting_for(memory_->start_all_gather(outputs[0], inputs[0]));
}

SharedBackend::WorkPointer SharedBackend::_allgather_base(at::Tensor& output, at::Tensor& input,
                                                          const c10d::AllgatherOptions& options) {
  if (!is_plain(output) || !is_plain(input)) return other_->_allgather_base(output, input, options);
  const at::Tensor flat = output.view({getSize(), -1});
  Tensors parts;
  for (int r = 0; r < getSize(); ++r) parts.push_back(flat[r]);
  return waiting_for(memory_->start_all_gather(parts, input));
}

SharedBackend::WorkPointer SharedBackend::_reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                                               const c10d::ReduceScatterOptions& options) {
  const bool is_sum = options.reduceOp == c10d::ReduceOp::SUM && SharedMemory::adds(input.scalar_type());
  if (!is_sum || !is_plain(output) || !is_plain(input)) return other_->_reduce_scatter_base(output, input, options);
  return waiting_for(memory_->start_reduce_scatter(output, input));
}

SharedBackend::WorkPointer SharedBackend::barrier(const c10d::BarrierOptions&) {
  return waiting_for(memory_->start_barrier());
}

}  // namespace trainrun
