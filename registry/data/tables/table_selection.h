#pragma once

#include <optional>
#include <string>
#include <vector>

#include "registry/data/tables/table_options.h"

namespace trainrun {

/// Which columns of a table are read.
struct WantedColumns {
  std::string path;  // of the table, for messages
  std::vector<std::string> labels;
  std::vector<std::string> ids;
  std::optional<std::vector<std::string>> features;  // null: all that are neither labels, ids nor no_features
  std::vector<std::string> named;                    // whose types the recipe says: they must be there
  bool may_lack_features = false;
  std::vector<std::string> no_features = {};  // of which the file may lack some
};

/// The place of the column among `names`. Throws DataError, with what to do about it, where it is not there.
size_t place_of_column(const TableSource& source, const std::string& column, const std::vector<std::string>& names);

/// The places of the features among `names`, then those of the labels. Throws DataError where one is not there or two
/// are called alike.
std::vector<size_t> select_columns(const TableSource& source, const WantedColumns& wanted,
                                   const std::vector<std::string>& names);

/// Those of `names` that are in none of the `known` lists.
std::vector<std::string> others_among(const std::vector<std::string>& names,
                                      const std::vector<std::vector<std::string>>& known);

/// What a user should know of `wanted` in a file with columns `names`, where the recipe does not list the features: which
/// of them the training data do not have, or which are no features; "" for nothing.
std::string note_on_columns(const WantedColumns& wanted, const std::vector<std::string>& names);
/// That these columns are no features; "" where there are none.
std::string no_features_note(const std::string& path, const std::vector<std::string>& names);

}  // namespace trainrun
