#pragma once

#include <cstdint>
#include <string>

namespace trainrun {

/// What a job was about when something failed.
struct Occasion {
  enum class Phase { kTraining, kEvaluation } phase = Phase::kTraining;
  int64_t step = 0;   // of training: the one being made; of an evaluation: the last that was, 0 where there is none
  int64_t epoch = 0;  // of training
  int64_t batch = 0;

  /// "training step 12 (epoch 0, batch 11)", "the evaluation after step 12 (batch 3)"
  std::string text() const;
};

}  // namespace trainrun
