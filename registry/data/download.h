#pragma once

#include <functional>
#include <string>
#include <vector>

namespace trainrun {

struct Download {
  /// Where the file can be had, tried in this order. http, https.
  std::vector<std::string> urls;
  /// Where it goes; its folder is made. If it is there already, nothing is done.
  std::string destination;
  /// Throws DataError if the file at this path is not the one wanted.
  std::function<void(const std::string& path)> verify;
  /// Seconds without a byte after which a server is given up.
  int64_t stall_seconds = 30;
};

/// Fetches a file into `destination`.part, verifies it, and renames it: `destination` is never there half. What an
/// earlier attempt left is continued where the server can, otherwise the file is fetched from its start. Processes that
/// want the same file wait for the first. Throws DataError with what went wrong at each url.
void download(const Download& job);

}  // namespace trainrun
