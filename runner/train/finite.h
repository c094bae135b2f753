#pragma once

#include <optional>
#include <string>

#include "registry/kinds/metric.h"
#include "runner/train/job.h"

namespace trainrun {

/// The name of a weight, or of a running mean or variance, that holds NaN or an infinity, on whatever rank; nothing
/// where all are finite. Called by all ranks.
std::optional<std::string> non_finite_weight(const Job& job);

/// "eval/loss is nan" of the first loss that is not finite. What a metric does not define is no fault.
std::optional<std::string> non_finite_loss(const Figures& figures);

/// "; the newest checkpoint is PATH", all of which have finite weights; "" where there is none, or another rank knows.
std::string newest_checkpoint(const Job& job);
/// The same of the newest whose evaluation gave finite losses.
std::string newest_finite_evaluation(const Job& job);

}  // namespace trainrun
