#pragma once

#include <optional>
#include <string>
#include <vector>

#include "registry/data/hub/split_files.h"
#include "registry/formats/web/hub_name.h"
#include "registry/formats/web/named_sources.h"

namespace trainrun {

/// What a recipe says of a data set on Hugging Face's hub, or of a folder that is laid out as such a repository.
struct HubQuery : SplitQuery {
  std::string path;  // "org/name", "org/name@revision", or the folder
  std::optional<std::string> revision;

  /// Throws DataError where `path` is neither a folder nor a name.
  HubName name() const;
  bool is_folder() const;
};

/// The files of a split where they lie on this machine.
struct HubFiles {
  SplitFiles split;
  std::vector<std::string> paths;  // of the same files
  DatasetCard card;
  std::string card_path;
  std::string source;     // "org/name@COMMIT", or the folder
  bool is_listed = true;  // else what the cache has was taken for all there is
};

/// Finds the files, in the cache or else on the hub, from which they are fetched where the network is allowed (network.h).
/// Throws DataError.
HubFiles hub_files(const HubQuery& query);

/// Where the files would come from; nothing for a folder. Opens no network. Throws DataError.
std::optional<NamedSource> source_of_dataset(const HubQuery& query);

}  // namespace trainrun
