#pragma once

#include <functional>
#include <vector>

#include "registry/kinds/callback.h"

namespace trainrun {

/// The weights to which a run goes back at its end, as EarlyStopping's `restore_best` asks: parameters that are trained,
/// buffers, and what callbacks average of them. Each rank keeps what it holds.
class KeptWeights {
 public:
  using Callbacks = std::vector<std::reference_wrapper<Callback>>;

  /// Copies them as they are. `callbacks`: all of the recipe, in order.
  void keep(Run& run, const Callbacks& callbacks);
  /// Puts them back. False where they are those of the current step, or there are none.
  bool restore(Run& run, const Callbacks& callbacks) const;
  /// Whether there are some, and not those of `step`.
  bool is_of_another(int64_t step) const { return step_ >= 0 && step_ != step; }
  /// The optimizer step of which they are; -1: there are none.
  int64_t step() const { return step_; }

  /// For checkpoints; those in the shape of parameter NAME are called NAME.something. The checkpoint of the step of which
  /// the weights are was begun before they were kept and may hold older ones: `load` then takes the run's own, which
  /// were put back before.
  Snapshot save() const;
  void load(Run& run, const Callbacks& callbacks, const Snapshot& saved);

 private:
  int64_t step_ = -1;
  NamedTensors parameters_;
  NamedTensors buffers_;
  std::vector<Snapshot> averages_;  // of each callback; empty where it has none
};

}  // namespace trainrun
