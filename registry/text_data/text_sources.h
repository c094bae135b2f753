#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "registry/data/tables/table_options.h"
#include "registry/data/text_file.h"

namespace trainrun {

/// Files of texts that are in `columns`: tables of any kind; and, of one column, files whose first line does not name it,
/// in which every line is a text. Throws DataError where a file's kind cannot be told.
std::vector<std::unique_ptr<TableSource>> text_sources(const std::vector<std::string>& paths,
                                                       const std::vector<std::string>& columns,
                                                       std::optional<TextEncoding> encoding);

}  // namespace trainrun
