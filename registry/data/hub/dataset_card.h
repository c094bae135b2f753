#pragma once

#include <nlohmann/json.hpp>

#include <optional>
#include <string>
#include <vector>

namespace trainrun {

/// Files by a name, as a card writes them: patterns of paths below the configuration's folder.
struct NamedFiles {
  std::string split;
  std::vector<std::string> patterns;
};

/// One of the configurations ("subsets") that the card of a data set lists.
struct CardConfig {
  std::string name = "default";
  bool is_default = false;               // it says so, or is called so
  std::string folder;                    // that its files are in; "": the repository's
  std::vector<NamedFiles> splits;        // in the card's order; empty: their names tell
  std::optional<std::string> delimiter;  // of CSV files
  std::vector<std::string> unread;       // parameters of it that nothing follows from here
};

/// What the head of a data set's README.md says, as Hugging Face's `datasets` reads it.
struct DatasetCard {
  std::vector<CardConfig> configs;  // none: the card lists none
  nlohmann::json info;              // its `dataset_info`; null for none

  /// The names of the classes that a column of a configuration holds the numbers of. Empty: the card does not tell.
  std::vector<std::string> class_names(const std::string& config, const std::string& column) const;
};

/// Reads the text of a card; without a head, it says nothing. Throws DataError, which begins with `place` and the line.
DatasetCard read_card(const std::string& text, const std::string& place);

/// The names of a column's classes in the features that `datasets` writes into the files' metadata (key `huggingface`).
/// Empty: it does not tell.
std::vector<std::string> class_names_in_metadata(const std::string& text, const std::string& column,
                                                 const std::string& place);

}  // namespace trainrun
