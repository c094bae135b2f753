#pragma once

#include "registry/kinds/logger.h"

namespace trainrun {

/// Registers `mlflow`: the run at an MLflow server, by its REST interface.
void add_mlflow(LoggerRegistry& loggers);

}  // namespace trainrun
