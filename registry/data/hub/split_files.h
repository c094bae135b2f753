#pragma once

#include <optional>
#include <string>
#include <vector>

#include "registry/data/hub/dataset_card.h"

namespace trainrun {

/// Which files of a data set's repository a recipe asks for.
struct SplitQuery {
  std::optional<std::string> split;  // null: train, or all of `files`
  std::optional<std::string> config;
  std::optional<std::string> files;  // a pattern: among these alone the split is looked for, whatever the card lists

  std::string wanted_split() const { return split.value_or("train"); }
};

/// The files of a split, in the order in which they are read.
struct SplitFiles {
  std::string config;  // "default" where the data set has no configurations
  std::string split;   // as the data set calls it
  std::vector<std::string> files;
  std::optional<std::string> delimiter;
  std::vector<std::string> unread;  // see CardConfig
};

/// Finds the files as Hugging Face's `datasets` does: by what the card lists, else by the names of folders and files.
/// Parquet, CSV, TSV and JSON lines are looked for, one of them in a split. `files`: all of the repository; `name`: its
/// own, for messages. Throws DataError for what is not there or could be several things, with what there is.
SplitFiles find_split(const std::vector<std::string>& files, const DatasetCard& card, const SplitQuery& query,
                      const std::string& name);

/// The file that is missing where names tell that there are more of them ("train-00000-of-00002.parquet"), or "".
std::string missing_shard(const std::vector<std::string>& files);

enum class HubFileKind { kParquet, kCsv, kTsv, kJsonl };
/// What a file holds by its name; nothing: none of these.
std::optional<HubFileKind> hub_file_kind(const std::string& file);

}  // namespace trainrun
