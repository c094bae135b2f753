#pragma once

#include <vector>

#include "registry/catalog.h"
#include "registry/language/error.h"

namespace trainrun {

/// The recipe with the paths on this machine in the place of files of Hugging Face's hub ("hf://datasets/org/name/a.csv")
/// that built-in data sets name by `path`, or of folders by `root`; these files are fetched where the network is allowed and the cache lacks them.
/// What cannot be had is added to `problems`, or, of a recipe that was trained with (`may_lack`: it may predict without
/// them), left as it is unless the command line says it; so is what waits for the network. Of a HubDataset's path, which
/// is a name, the scheme is taken off.
Value with_hub_paths(Value recipe, const Catalog& catalog, bool may_lack, std::vector<Problem>& problems);

}  // namespace trainrun
