#pragma once

#include <memory>
#include <string>
#include <vector>

#include "runner/replay/tensor_figures.h"
#include "runner/train/job.h"

namespace trainrun {

/// One of the things that a step reads or computes.
struct RecordedItem {
  enum class Kind {
    kParameter,       // before the step
    kBuffer,          // likewise: running means, counts
    kOptimizerState,  // likewise
    kSamples,         // their numbers in the data set
    kField,           // of the batch: "image"
    kOutput,          // of a layer
    kLoss,
    kOutputGradient,  // with respect to a layer's output
    kGradient,        // of a parameter
    kRates,           // learning rates, by group
    kNewParameter,    // after the step
    kNewBuffer,
    kNewOptimizerState,
  };
  Kind kind = Kind::kParameter;
  std::string name;   // "3.weight", "image"; of a layer its name in the state dict
  std::string type;   // of a layer: "Linear"
  int64_t batch = 0;  // of the step's batches, from 0
  TensorFigures figures;
  at::Tensor value = {};  // a copy; undefined where only figures are wanted
  at::Tensor input = {};  // of an output that is not finite: what the layer read

  /// "parameter 3.weight", "the output of 3 (Linear)", "the gradient of 3.weight"
  std::string to_string() const;
};

/// All that a step reads and computes, in the order in which it does.
struct RecordedStep {
  int64_t step = 0;
  int64_t epoch = 0;
  int64_t first_batch = 0;  // of the epoch
  double loss = 0;
  std::optional<double> grad_norm;  // before clipping
  std::vector<double> rates;        // of each group
  std::vector<int64_t> samples;     // their numbers in the data set, batch after batch
  std::vector<RecordedItem> items;

  const RecordedItem* find(RecordedItem::Kind kind, const std::string& name) const;
};

/// Records one step of a job that is trained, and changes no number of it.
class StepRecorder {
 public:
  enum class Keep { kFigures, kValues };
  /// The job outlives this.
  StepRecorder(Job& job, Keep keep);
  ~StepRecorder();
  StepRecorder(const StepRecorder&) = delete;
  StepRecorder& operator=(const StepRecorder&) = delete;

  /// The next step is the one.
  void arm();
  /// What was recorded, once the step is done.
  RecordedStep take(const StepOutcome& outcome);
  /// What was recorded of a step that failed.
  RecordedStep take_unfinished();

 private:
  class Recording;
  std::shared_ptr<Recording> recording_;
};

/// The first item that holds NaN or an infinity, in the order of computation, besides buffers and the optimizer's
/// state; null where all are finite.
const RecordedItem* first_not_finite(const RecordedStep& step);

}  // namespace trainrun
