#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "registry/formats/web/hub_cache.h"
#include "registry/formats/web/hub_name.h"

namespace trainrun {

/// The files of a repository at one commit.
struct HubListing {
  std::string commit;
  std::vector<std::string> files;  // with their folders, "onnx/model.onnx"
  std::string tree;  // the same as the cache keeps it (HubCache::tree); "" where the hub does not say enough

  bool has(const std::string& file) const;
};

/// Asks the hub what a repository holds. Throws DataError with one sentence on what went wrong and what to do.
HubListing list_hub_files(const HubName& name);

/// Whether this is a path below a folder that stays there, as files of a repository have.
bool is_repository_path(const std::string& file);

/// Brings a file of the listing into the cache, whole and verified, unless it is there: by its size and its SHA-256 or
/// git's SHA-1, whichever the hub says. Processes that want the same file wait for the first. Throws DataError.
void fetch_hub_file(const HubName& name, const HubCache& cache, const HubListing& listing, const std::string& file);

}  // namespace trainrun
