#pragma once

#include <optional>
#include <string>

namespace trainrun {

/// The path of a file that comes with trainrun, found beside the library or the program wherever they were built or
/// installed: `shipped_file("recipes/data/digits.csv.gz")`. Throws DataError naming every place tried.
std::string shipped_file(const std::string& name);

/// The same, but empty if there is no such file.
std::optional<std::string> find_shipped_file(const std::string& name);

/// Where a library lies that is opened only when it is needed: beside the one that holds the registry. It need not be
/// there.
std::string library_beside(const std::string& name);

}  // namespace trainrun
