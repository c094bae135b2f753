#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "registry/kinds/layer.h"
#include "registry/kinds/optimizer.h"
#include "registry/tensors/named_tensors.h"

namespace trainrun {

/// Keeps the model's copies on several ranks one model: what is shared when. All ranks call the same in the same order.
///
///   parallel.prepare_forward(last_of_window);
///   loss = forward(batch);
///   parallel.prepare_backward(last_of_window, loss);
///   loss.backward();
///   parallel.finish_backward(last_of_window);   // after the window's last, gradients are the mean over ranks
///   optimizer.step();
class ParallelModel {
 public:
  virtual ~ParallelModel() = default;

  virtual void prepare_forward(bool synchronize) = 0;
  /// `loss`: what the backward pass begins from.
  virtual void prepare_backward(bool synchronize, const at::Tensor& loss) = 0;
  virtual void finish_backward(bool synchronize) { static_cast<void>(synchronize); }
  /// Rank 0's running means and counts for all: before an evaluation.
  virtual void share_buffers() = 0;

  /// What this rank's optimizer changes, by state name: the parameters, or this rank's pieces of them.
  virtual NamedTensors parameters() const = 0;
  /// Whether they are pieces. Then a gradient's norm, or whether all are finite, is only known from all ranks.
  virtual bool is_sharded() const { return false; }

  /// While one is held, the model's own tensors are whole and may be read and changed; when it goes, changes are kept.
  class Whole {
   public:
    virtual ~Whole() = default;
  };
  virtual std::unique_ptr<Whole> make_whole() { return nullptr; }
  /// The model's tensors as one process would have them; on rank 0, on others nothing that can be read.
  virtual NamedTensors gather_model(const NamedTensors& state_dict) { return state_dict; }
  /// Tensors that belong to parameters, each called PARAMETER.something, as one process would have them: an optimizer's
  /// state, say; on rank 0, on others nothing that can be read.
  virtual NamedTensors gather_state(const NamedTensors& own) { return own; }
  /// This rank's part of what `gather_state` gave, under another number of ranks perhaps.
  virtual NamedTensors own_state(const NamedTensors& whole) { return whole; }
  /// What must be found again after a resume besides: of the communication hook. [world_size, …] each.
  virtual NamedTensors hook_state() { return {}; }
  virtual void load_hook_state(const NamedTensors& state) { static_cast<void>(state); }
};

/// The model of a process that trains alone: nothing is shared.
class LoneModel : public ParallelModel {
 public:
  explicit LoneModel(NamedTensors parameters) : parameters_(std::move(parameters)) {}

  void prepare_forward(bool) override {}
  void prepare_backward(bool, const at::Tensor&) override {}
  void share_buffers() override {}
  NamedTensors parameters() const override { return parameters_; }

 private:
  NamedTensors parameters_;
};

}  // namespace trainrun
