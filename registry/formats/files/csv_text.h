#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace trainrun {

/// A field of a CSV table as RFC 4180 has it: in quotation marks where it must be.
std::string csv_field(std::string_view text);
/// A line of such fields, and its end.
std::string csv_record(const std::vector<std::string>& fields);

}  // namespace trainrun
