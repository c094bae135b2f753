#pragma once

#include <string>

#include "registry/kinds/logger.h"

namespace trainrun {

/// One line of metrics.jsonl, without its line end. Numbers read back to the same double; what is not finite, which
/// JSON cannot say, is null.
std::string jsonl_line(const StepRecord& record);
std::string jsonl_line(const EvaluationRecord& record);

/// Registers `jsonl`: OUTPUT_DIR/metrics.jsonl, appended to, each line by one write.
void add_jsonl(LoggerRegistry& loggers);

}  // namespace trainrun
