#pragma once

#include <optional>
#include <string>
#include <vector>

#include "registry/formats/web/hub_name.h"
#include "registry/formats/web/named_sources.h"

namespace trainrun {

/// A file of a data set's repository as huggingface_hub's HfFileSystem names it, "hf://datasets/org/name@revision/a.csv".
struct HubUrl {
  HubName name;
  std::string file;  // or a folder of files, or a pattern (path_glob.h); "": all of the repository
};

/// Whether a path begins as such names do.
bool is_hub_url(const std::string& path);
/// Throws DataError where it is not one of a data set's file, or of a data set.
HubUrl parse_hub_url(const std::string& url);

/// The path of the file or folder on this machine, or the pattern there, whose files are all there then: they are fetched
/// unless the cache has them. Throws DataError, also where the network is not allowed, or where a cache that nobody has
/// listed the repository for may lack some of the files.
std::string local_path(const std::string& url);
/// The same; of a pattern the files, in the order of their names.
std::vector<std::string> local_paths(const std::string& url);
/// What a path names that lies in the hub's cache of data sets, at its commit; nothing for another.
std::optional<HubUrl> url_of_cached(const std::string& path);
/// "hf://datasets/org/name@revision/a.csv"
std::string url_text(const HubUrl& url);
/// Where the files would come from. Opens no network. Throws DataError.
NamedSource source_of_hub_url(const std::string& url);

}  // namespace trainrun
