#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "registry/kinds/batch.h"
#include "registry/kinds/communicator.h"
#include "registry/kinds/metric.h"
#include "registry/kinds/snapshot.h"
#include "registry/kinds/step_result.h"

namespace trainrun {

/// The run, as a callback that takes part in it sees it.
class Run {
 public:
  virtual ~Run() = default;
  /// The number of finished optimizer steps.
  virtual int64_t step() const = 0;
  /// How many the whole job has.
  virtual int64_t total_steps() const = 0;
  virtual uint64_t seed() const = 0;
  /// The model's parameters by state name, to be read and changed in place. They are whole or, if each rank has only
  /// pieces of them, this rank's pieces ([n]; n may be 0).
  virtual NamedTensors parameters() const = 0;
  /// Whether `parameters` and their gradients are pieces.
  virtual bool has_pieces() const = 0;
  /// The model's buffers by state name, such as running means and counts. Whole on every rank.
  virtual NamedTensors buffers() const = 0;
  /// The ranks that train together; a process that trains alone is rank 0 of 1.
  virtual Communicator& ranks() const = 0;
  /// While training: estimates what batch normalizations keep of their batches anew, for the weights as they are, by
  /// one pass over the training data: each batch has the same share. Semantics of torch.optim.swa_utils.update_bn; the
  /// batches of all ranks count. Every rank calls it. The state of the random generators does not change.
  virtual void estimate_batch_norms() = 0;
};

/// How an evaluation computes the outputs of a batch that losses and metrics read.
class Predictor {
 public:
  using Forward = std::function<Tensors(const Batch&)>;
  virtual ~Predictor() = default;
  /// `forward` makes one pass of the model, in evaluation mode and without gradients. The result must have as many
  /// tensors as one pass, in the same shapes and order. Every rank must make the same number of passes.
  virtual Tensors predict(const Batch& batch, const Forward& forward) { return forward(batch); }
};

/// A change that holds during an evaluation; the destructor undoes it.
class Scope {
 public:
  virtual ~Scope() = default;
  /// Null stands for a single forward pass.
  virtual Predictor* predictor() { return nullptr; }
};

/// What a callback decides after an evaluation.
struct Verdict {
  bool is_best = false;  // it is the best so far: its checkpoint becomes `best`
  std::string stop;      // why training ends here; "" if it goes on
  bool keep = false;     // the weights are kept as they are, in place of those kept before: see `restores`
};

/// Takes part in a run. Each function is called on every rank, in the order of the recipe's callbacks. An exception
/// ends the run, with a message that names the callback. Whatever a callback changes, it must change alike on all
/// ranks.
class Callback {
 public:
  virtual ~Callback() = default;
  /// Called before each forward pass of training, with its batch, which it may change.
  virtual void before_forward(Run& run, Batch& batch) { static_cast<void>(run), static_cast<void>(batch); }
  /// Called in each step once the gradients are there, unscaled and clipped, before the optimizer changes the weights.
  /// `is_logged`: whether the log gets a line after the step.
  virtual void before_update(Run& run, bool is_logged) { static_cast<void>(run), static_cast<void>(is_logged); }
  /// Whether it looks at gradients in such a step. Where none does, they are clipped while the optimizer reads them.
  virtual bool reads_gradients(bool is_logged) const { return static_cast<void>(is_logged), true; }
  /// Called where a line of the log is due, after the step: adds figures to it, such as {"train/grad_norm/all", 0.4}.
  virtual void add_figures(Run& run, Figures& figures) { static_cast<void>(run), static_cast<void>(figures); }
  /// Called after each optimizer step. Reading a tensor of `result` makes the host wait for a GPU.
  virtual void after_step(Run& run, const StepResult& result) { static_cast<void>(run), static_cast<void>(result); }
  /// Called once training is over, but not where a signal stopped it: before the last checkpoint and the last
  /// evaluation. Returns whether it changed anything that evaluations use.
  virtual bool after_training(Run& run) { return static_cast<void>(run), false; }
  /// Called before an evaluation, also that of `trainrun eval`; null if nothing changes. If a checkpoint is asked for
  /// during the evaluation, the scope ends for it, and this is called again.
  virtual std::unique_ptr<Scope> around_evaluation(Run& run) { return static_cast<void>(run), nullptr; }
  /// Called with the figures of an evaluation, such as {"eval/loss", 0.4}. The checkpoint was begun before the
  /// evaluation and already has the callback's tensors, so state that changes here must be among the snapshot's values.
  virtual Verdict after_evaluation(Run& run, const Figures& figures) {
    return static_cast<void>(run), static_cast<void>(figures), Verdict();
  }
  /// Whether the run ends with the weights that were last kept for it (Verdict::keep): it goes back to them after its
  /// last evaluation. One callback of a recipe may say so.
  virtual bool restores() const { return false; }
  /// Whether evaluations may use the tensors that `save` gives, which are then kept and restored with the weights.
  virtual bool has_weights() const { return false; }
  /// The name of the figure that it watches, which evaluations must have, or "".
  virtual std::string monitor() const { return ""; }
  /// Saves what is needed when the run is resumed. A tensor in the shape of `run`'s parameter NAME must be called
  /// NAME.something, so that the ranks' pieces are put together. Of other tensors, those of rank 0 are saved.
  virtual void save(Run& run, Snapshot& snapshot) const { static_cast<void>(run), static_cast<void>(snapshot); }
  /// Restores what `save` saved, cut to this rank's pieces. Throws Error if it does not fit.
  virtual void load(Run& run, const Snapshot& snapshot) { static_cast<void>(run), static_cast<void>(snapshot); }
};

struct CallbackInputs {};

struct CallbackKind {
  static constexpr const char* kName = "callback";
  using Inputs = CallbackInputs;
  using Product = std::unique_ptr<Callback>;
  using Common = NoCommon;
};
using CallbackRegistry = Registry<CallbackKind>;
const CallbackRegistry& registry_of(const Catalog& catalog, CallbackKind);

/// The value of the figure called `name`, if there is one.
std::optional<double> figure_of(const Figures& figures, const std::string& name);

}  // namespace trainrun
