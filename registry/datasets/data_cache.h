#pragma once

#include <string>

#include "registry/datasets/download.h"

namespace trainrun {

/// The folder in which the recipes of a user share what was fetched: the one that TRAINRUN_CACHE names, else `trainrun`
/// in XDG_CACHE_HOME, else ~/.cache/trainrun. "" where none of these is set.
std::string cache_folder();

/// Gives `job.destination` the file called `name` ("mnist/train-images-idx3-ubyte.gz") of the cache, which is fetched
/// first where it is not there or not the one wanted. Returns the path to read: where the destination cannot be
/// written, the cache's own. Where the cache cannot be used, the file is fetched to the destination. Throws DataError.
std::string download_shared(const Download& job, const std::string& name);

}  // namespace trainrun
