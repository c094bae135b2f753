#pragma once

#include <string>

#include "registry/language/regex.h"

namespace trainrun {

/// A regular expression of a recipe (ECMAScript's), to be searched in names. Throws DataError.
inline Regex regex_of(const std::string& pattern) { return Regex(pattern, Regex::Syntax::kEcmaScript); }
/// One that must match all of a name.
inline Regex whole_regex_of(const std::string& pattern) { return regex_of("^(?:" + pattern + ")$"); }

}  // namespace trainrun
