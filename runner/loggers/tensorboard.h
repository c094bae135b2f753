#pragma once

#include "registry/logger.h"

namespace trainrun {

/// Registers `TensorBoard`: event files that `tensorboard --logdir` shows.
void add_tensorboard(LoggerRegistry& loggers);

}  // namespace trainrun
