#pragma once

#include <optional>
#include <set>
#include <string>

#include "registry/data/tables/table_columns.h"

namespace trainrun {

/// What the column calls a category `name` of the data: the same, or, of a whole number, "1" for "1.0" and "1.0" for "1"
/// (as a column of integers becomes one of floats where a value is missing); nothing: none of its categories.
std::optional<std::string> known_category(const Column& column, const std::string& name);

/// What to call a boolean's value that a file writes as `words`: the one word; "yes" where they are "Yes", "YES" and "y";

/// The classes of the last of `columns`, a label that is a boolean: "no" and "yes", where both have a boolean_name.
std::vector<std::string> boolean_words(const std::vector<Column>& columns);

}  // namespace trainrun
