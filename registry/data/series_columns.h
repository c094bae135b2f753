#pragma once

#include <optional>
#include <string>

#include "registry/kinds/dataset.h"

namespace trainrun {

/// The same message about rows that cannot be read, where it advises how to read as features the columns that `group` and
/// `time` name: these tell rows apart, and `features` should not have them.
std::string without_series_columns(const std::string& message, const std::optional<std::string>& group,
                                   const std::optional<std::string>& time, const Dataset& rows);

}  // namespace trainrun
