#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "registry/kinds/logger.h"

namespace trainrun {

// What the console says, as text.

/// Size of the model and the data, length of the job, where it runs and where it resumes: some lines.
std::vector<std::string> start_lines(const RunInfo& info);
/// "step 100/15000 loss 0.4103 avg 0.6921 lr 2.0e-04 5,812 samples/s"
std::string step_line(const StepRecord& record, const RunInfo& info);
/// "eval step 1875/15000 loss 0.0612 accuracy 98.02 %"
std::string evaluation_line(const EvaluationRecord& record, const RunInfo& info);
/// "checkpoint step 1875/15000 runs/mnist_cnn/checkpoints/epoch-0001"
std::string checkpoint_line(const CheckpointRecord& record, const RunInfo& info);

/// What a progress bar shows.
struct ProgressState {
  int64_t step = 0;
  int64_t total_steps = 0;
  double loss = 0;
  double samples_per_second = 0;
  double seconds_left = 0;
};
/// "[=====>          ] 34 % 5100/15000 loss 0.0612 5,812 samples/s ETA 12 s", no wider than `width`: the less important
/// parts go first.
std::string progress_bar(const ProgressState& state, size_t width);

/// Registers `console`: lines through spdlog (so log.txt has them too) and, where somebody watches, a progress bar.
void add_console(LoggerRegistry& loggers);

}  // namespace trainrun
