#pragma once

#include <vector>

#include "registry/catalog.h"
#include "registry/language/error.h"

namespace trainrun {

/// The recipe with the paths on this machine in the place of files of Hugging Face's hub ("hf://datasets/org/name/a.csv")
/// that built-in data sets name by `path`; these files are fetched where the network is allowed and the cache lacks them.
/// What cannot be had is added to `problems`, or, of a recipe that was trained with (`may_lack`: it may predict without
/// them), left as it is, as is what waits for the network.
Value with_hub_paths(Value recipe, const Catalog& catalog, bool may_lack, std::vector<Problem>& problems);

}  // namespace trainrun
