#pragma once

#include <variant>

#include "registry/kinds/logger.h"
#include "runner/loggers/tensor_records.h"

namespace trainrun {

/// What `Logger::on_progress` tells.
struct ProgressRecord {
  int64_t step = 0;
  double loss = 0;
};

/// What a logger is told, to be kept until it is.
using Event = std::variant<RunInfo, ProgressRecord, StepRecord, EvaluationRecord, CheckpointRecord, EndRecord,
                           DrawnGraph, HistogramRecord, PicturesRecord>;

/// Calls the member of `logger` that is for this event, if it has one.
void tell(Logger& logger, const Event& event);

}  // namespace trainrun
