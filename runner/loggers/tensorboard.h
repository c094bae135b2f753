#pragma once

#include "registry/kinds/logger.h"

namespace trainrun {

/// Registers `tensorboard`: event files that `tensorboard --logdir` shows.
void add_tensorboard(LoggerRegistry& loggers);

}  // namespace trainrun
