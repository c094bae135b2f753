#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "registry/batch.h"
#include "registry/communicator.h"
#include "registry/metric.h"
#include "registry/snapshot.h"
#include "registry/step_result.h"

namespace trainrun {

/// What a callback sees of the run that it takes part in.
class Run {
 public:
  virtual ~Run() = default;
  /// Finished optimizer steps.
  virtual int64_t step() const = 0;
  /// The model's parameters by state name, to read and to change in place: whole, or, where a rank has only pieces of
  /// them, this rank's pieces ([n], n may be 0).
  virtual NamedTensors parameters() const = 0;
  /// What layers keep besides, by state name: running means, counts. Whole on every rank.
  virtual NamedTensors buffers() const = 0;
  /// The ranks that train together; null for one process.
  virtual Communicator* ranks() const = 0;
};

/// How an evaluation makes what losses and metrics read of a batch.
class Predictor {
 public:
  using Forward = std::function<Tensors(const Batch&)>;
  virtual ~Predictor() = default;
  /// `forward`: one pass of the model, in evaluation mode and without gradients. The result has the tensors that one
  /// pass gives, in shape and order. Every rank makes as many passes as the others.
  virtual Tensors predict(const Batch& batch, const Forward& forward) { return forward(batch); }
};

/// What holds during an evaluation; its end puts everything back.
class Scope {
 public:
  virtual ~Scope() = default;
  /// Null: one forward pass.
  virtual Predictor* predictor() { return nullptr; }
};

/// What a callback has to say of an evaluation.
struct Verdict {
  bool is_best = false;  // the best so far: its checkpoint becomes `best`
  std::string stop;      // why training ends here; "": it goes on
};

/// Takes part in a run: on every rank, in the recipe's order, at a few points. What it throws ends the run, and names
/// it. What it changes of the run it must change alike on all ranks.
class Callback {
 public:
  virtual ~Callback() = default;
  /// After each optimizer step. To read a tensor of `result` makes the host wait for a GPU.
  virtual void after_step(Run& run, const StepResult& result) { static_cast<void>(run), static_cast<void>(result); }
  /// Before an evaluation, of the verb `eval` too; null: nothing changes. Where a checkpoint is asked for in its midst,
  /// the scope ends, and this is called again.
  virtual std::unique_ptr<Scope> around_evaluation(Run& run) { return static_cast<void>(run), nullptr; }
  /// What an evaluation of the run found, by name: {"eval/loss", 0.4}. The checkpoint before it has the callback's
  /// tensors already: what changes here belongs into its values.
  virtual Verdict after_evaluation(Run& run, const Figures& figures) {
    return static_cast<void>(run), static_cast<void>(figures), Verdict();
  }
  /// The figure that it watches: one that evaluation must give; or "".
  virtual std::string monitor() const { return ""; }
  /// What must be found again when the run goes on. A tensor that has the shape of `run`'s parameter NAME is called
  /// NAME.something: the ranks' pieces are then put together. Others are rank 0's.
  virtual void save(Run& run, Snapshot& snapshot) const { static_cast<void>(run), static_cast<void>(snapshot); }
  /// Takes back what `save` gave, cut to this rank's pieces. Throws Error where it does not fit.
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

/// The figure called `name`, or nothing.
std::optional<double> figure_of(const Figures& figures, const std::string& name);

}  // namespace trainrun
