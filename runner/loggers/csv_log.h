#pragma once

#include <string>
#include <vector>

#include "registry/kinds/logger.h"

namespace trainrun {

/// One record of a CSV file (RFC 4180), with its line end: what holds a comma, a quotation mark or a line end is quoted.
std::string csv_record(const std::vector<std::string>& fields);

/// Registers `csv`: OUTPUT_DIR/metrics.csv, a row for each line of the log and each evaluation.
void add_csv(LoggerRegistry& loggers);

}  // namespace trainrun
