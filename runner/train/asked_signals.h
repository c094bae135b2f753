#pragma once

#include <ATen/core/Tensor.h>

namespace trainrun {

class ProcessGroup;

/// What `own_signal` gives where the process shall save and go on.
constexpr int kSaveAndGoOn = 1;

/// How many numbers say which signals came to the ranks.
constexpr int64_t kSignalNumbers = 3;

/// How many numbers say what rank 0's clock asks for, where a recipe heeds the clock.
constexpr int64_t kClockNumbers = 2;

/// How many numbers say whether rank 0 was asked for a change.
constexpr int64_t kChangeNumbers = 1;

/// The signal to stop that has come to this process, or kSaveAndGoOn, or 0. A request to save is answered once.
int own_signal();

/// The greatest of what the ranks' `own_signal` give. Collective.
int agreed_signal(ProcessGroup& group);

/// Notes one rank's `signal` in `counts` [kSignalNumbers] (float64, zeros), which are then added up over ranks.
void count_signal(int signal, const at::Tensor& counts);
/// The greatest signal that `counts` have, as `agreed_signal` gives it.
int greatest_signal(const at::Tensor& counts);

}  // namespace trainrun
