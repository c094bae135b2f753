#pragma once

#include <optional>
#include <string>

#include "registry/data/text_file.h"

namespace trainrun {

/// Lines with a '#' at the beginning of a table of delimited text. Throws DataError, with a command that leaves them out,
/// where they are comments, of which no recipe can say that they are. Returns a doubt where the first line may rather
/// hold the names of the columns, as which it is read; else "".
std::string doubt_about_comments(const std::string& path, const std::optional<TextEncoding>& encoding);

}  // namespace trainrun
