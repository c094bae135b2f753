#pragma once

#include <memory>
#include <string>
#include <vector>

#include "registry/graph/passes.h"
#include "runner/distributed/parallel_model.h"
#include "runner/distributed/process_group.h"
#include "runner/distributed/shard_layout.h"
#include "runner/distributed/shared_weights.h"

namespace trainrun {

struct ShardingOptions {
  int64_t stage = 3;  // 1: optimizer state is sharded; 2: gradients as well; 3: parameters as well
  std::vector<std::string> wrap;
  bool prefetch = true;
};

/// Every rank keeps a stretch of each unit's parameters, gradients and optimizer state. A unit's parameters are
/// gathered before it computes, and its gradients, once all are there, summed and cut up again while the backward pass
/// goes on. At stage 3 whole parameters go as soon as a unit has computed, but for the last; at stages 1 and 2 after its
/// backward pass; at stage 1 gradients are kept whole within a window and summed at its end. Source: Rajbhandari et al.
/// 2020, "ZeRO"; Zhao et al. 2023, "PyTorch FSDP". Every rank must compute the same layers.
class ShardedModel : public ParallelModel {
 public:
  /// The graph's parameters become views of what is gathered; `brackets` must be around its layers whenever it
  /// computes. `buffers`: broadcast from rank 0 before each synchronized forward pass. The graph must live as long.
  ShardedModel(ProcessGroup& group, const Graph& graph, Tensors buffers, const ShardingOptions& options);
  ~ShardedModel() override;

  /// What gathers each unit before its layers compute, and releases it after them. They must not outlive this.
  std::vector<Bracket> brackets();

  void prepare_forward(bool synchronize) override;
  void prepare_backward(bool synchronize, const at::Tensor& loss) override;
  void finish_backward(bool synchronize) override;
  void share_buffers() override;
  NamedTensors parameters() const override;
  bool is_sharded() const override { return true; }
  std::unique_ptr<Whole> make_whole() override;
  NamedTensors gather_model(const NamedTensors& state_dict) override;
  NamedTensors gather_state(const NamedTensors& of_rank) override;
  NamedTensors own_state(const NamedTensors& whole) override;

 private:
  using Unit = ShardedUnit;
  class WholeUnits;

  void gather(Unit& unit);
  void start_gather(Unit& unit);
  void release(Unit& unit);
  void keep(Unit& unit);
  void before_forward(Unit& unit);
  void after_forward(Unit& unit, Tensors& outputs);
  static void copy_views(const Unit& unit, Tensors& outputs);
  void before_backward(Unit& unit);
  static void begin_gradient(Unit& unit);
  void take_gradient(Unit& unit, size_t parameter);
  static void drop_gradient(Unit& unit);
  static void zero_rest(Unit& unit);
  void reduce(Unit& unit);
  void finish_reduction();
  at::Tensor collect(const Unit& unit, size_t parameter, const at::Tensor& piece);
  std::pair<Unit*, size_t> find(const std::string& parameter) const;

  ProcessGroup& group_;
  Tensors buffers_;
  ShardingOptions options_;
  std::vector<std::unique_ptr<Unit>> units_;
  std::unique_ptr<SharedWeights> weights_;       // null: the ranks have no memory in common
  std::vector<std::pair<Unit*, size_t>> order_;  // of all parameters, as the model has them
  Unit* reducing_ = nullptr;                     // whose gradients are on their way
  bool synchronizes_ = true;                     // this backward pass is the window's last
  bool window_begins_ = true;
};

}  // namespace trainrun
