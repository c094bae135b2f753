#pragma once

#include <string>

#include "registry/kinds/callback.h"

namespace trainrun {

/// A callback that averages the weights of some steps, has evaluations use the average, and keeps it in checkpoints.
/// The first step that counts begins it. Each rank averages what it holds.
class AveragedWeights : public Callback {
 public:
  /// `name`: of the component, for messages. `use_buffers`: whether the layers' buffers are averaged as well.
  AveragedWeights(std::string name, bool use_buffers, bool use_for_evaluation)
      : name_(std::move(name)), use_buffers_(use_buffers), use_for_evaluation_(use_for_evaluation) {}

  void after_step(Run& run, const StepResult& result) override;
  bool reads_gradients(bool) const override { return false; }
  std::unique_ptr<Scope> around_evaluation(Run& run) override;
  bool has_weights() const override { return true; }
  void save(Run& run, Snapshot& snapshot) const override;
  void load(Run& run, const Snapshot& snapshot) override;

 protected:
  /// Whether the weights after `step` optimizer steps count.
  virtual bool counts(int64_t step) const = 0;
  /// The share of the new weights in an average of `num_averaged` steps so far.
  virtual double share_of_new(int64_t num_averaged) const = 0;
  /// How many of the first `step` steps count.
  virtual int64_t num_counted(int64_t step) const = 0;
  /// Estimates what batch normalizations keep anew, for the averaged weights. False if there are none yet.
  bool estimate_batch_norms(Run& run);

 private:
  class Exchanged;
  /// What is averaged; gathered once, since a run keeps its tensors.
  const NamedTensors& averaged_of(const Run& run);
  /// The averages become the model's tensors, and the model's the averages.
  void exchange(Run& run);

  std::string name_;
  bool use_buffers_;
  bool use_for_evaluation_;
  NamedTensors averaged_;
  Tensors averages_;  // of `averaged_`, as many; empty before the first step that counts
};

}  // namespace trainrun
