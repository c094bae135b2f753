#pragma once

#include <string>
#include <utility>
#include <vector>

#include "runner/job.h"

namespace trainrun {

/// Training cannot go on: a loss that is no number.
class TrainingError : public Error {
 public:
  using Error::Error;
};

/// Trains until the job is done or a signal asks to stop; saves, evaluates and reports as the recipe says. Returns the
/// signal, 0 when done. Throws TrainingError, and what loading, saving and LibTorch throw.
int train(Job& job);

/// One optimizer step over the next `gradient_accumulation_steps` batches (fewer at the end of an epoch); the mean loss
/// over their samples, and in `job.loss_parts` that of each loss.
double train_step(Job& job, BatchStream& batches);

/// The signal to stop that has come, to whichever rank, 0: none; all ranks agree. After every step.
int agreed_signal(Job& job);

/// Loss and metrics over the whole evaluation split: {"eval/loss", …}, where there are several losses each of them,
/// {"eval/loss/NAME", …}, and {"eval/accuracy", …}.
std::vector<std::pair<std::string, double>> evaluate(const Recipe& recipe, Model& model, const DataLoader& loader,
                                                     const std::vector<std::unique_ptr<Metric>>& metrics,
                                                     ProcessGroup* group = nullptr);

/// Names of the figures that `evaluate` gives.
std::vector<std::string> evaluation_names(const Recipe& recipe, const std::vector<std::unique_ptr<Metric>>& metrics);

}  // namespace trainrun
