#pragma once

#include "registry/kinds/logger.h"

namespace trainrun {

/// Registers `csv`: OUTPUT_DIR/metrics.csv, a row for each line of the log and each evaluation.
void add_csv(LoggerRegistry& loggers);

}  // namespace trainrun
