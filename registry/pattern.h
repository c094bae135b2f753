#pragma once

#include <optional>
#include <string>

#include "registry/codec.h"

namespace trainrun {

/// Why `pattern` is not a regular expression; "" if it is one.
std::string pattern_fault(const std::string& pattern);

/// The regular expression under `match`, to be searched in names; empty if it is invalid, which was reported.
std::optional<std::string> read_pattern(const Value& match, Reader& reader);

}  // namespace trainrun
