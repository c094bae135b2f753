#pragma once

#include <string>

#include "registry/formats/web/hub_name.h"
#include "registry/formats/web/named_sources.h"

namespace trainrun {

/// A file of a data set's repository as huggingface_hub's HfFileSystem names it, "hf://datasets/org/name@revision/a.csv".
struct HubUrl {
  HubName name;
  std::string file;  // or a pattern, in which *, ? and [ ] stand for what they stand for in a path
};

/// Whether a path begins as such names do.
bool is_hub_url(const std::string& path);
/// Throws DataError where it is not one of a data set's file.
HubUrl parse_hub_url(const std::string& url);

/// The path of the file on this machine, or the pattern there, whose files are all there then: they are fetched unless the
/// cache has them. Throws DataError, also where the network is not allowed.
std::string local_path(const std::string& url);
/// Where the files would come from. Opens no network. Throws DataError.
NamedSource source_of_hub_url(const std::string& url);

}  // namespace trainrun
