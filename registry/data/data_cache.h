#pragma once

#include <functional>
#include <optional>
#include <string>

#include "registry/formats/files/file_lock.h"
#include "registry/formats/web/download.h"
#include "registry/language/error.h"

namespace trainrun {

/// The folder in which the recipes of a user share what was fetched: the one that TRAINRUN_CACHE names, else `trainrun`
/// in XDG_CACHE_HOME, else ~/.cache/trainrun. "" where none of these is set.
std::string cache_folder();

/// The file `key` for `what` ("images") in the cache folder, whose folder is made. Throws DataError where there is no
/// cache folder, FileError where it cannot be written.
std::string kept_path(const std::string& what, const std::string& key);
/// Removes what processes that were killed had begun to write at `path`. The lock on it is held.
void remove_unfinished(const std::string& path);

/// What `read` finds at the path of `key`; where that is nothing, no file or a damaged one, `write` makes the file first,
/// whole or not at all. One process at a time makes it, the others wait for it. Throws as kept_path does.
template <class Kept>
Kept kept_in_cache(const std::string& what, const std::string& key,
                   const std::function<std::optional<Kept>(const std::string& path)>& read,
                   const std::function<void(const std::string& path)>& write) {
  const std::string path = kept_path(what, key);
  if (auto found = read(path)) return std::move(*found);
  const FileLock lock(path + ".lock");
  if (auto found = read(path)) return std::move(*found);  // made by who had the lock before
  remove_unfinished(path);
  write(path);
  auto found = read(path);
  if (!found) throw DataError(path + ": was changed while it was read");
  return std::move(*found);
}

/// Gives `job.destination` the file called `name` ("mnist/train-images-idx3-ubyte.gz") of the cache, which is fetched
/// first where it is not there or not the one wanted. Returns the path to read: where the destination cannot be
/// written, the cache's own. Where the cache cannot be used, the file is fetched to the destination. Throws DataError.
std::string download_shared(const Download& job, const std::string& name);

}  // namespace trainrun
