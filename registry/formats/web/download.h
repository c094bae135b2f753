#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "registry/formats/web/network.h"

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
  /// Where it grows; "": `destination`.part.
  std::string part = {};
  /// How often a server is asked again that is too busy, or has a fault of its own (transfer.h).
  int retries = 0;
  /// Sent to the servers of `urls`, not to those that they redirect to; "" for none.
  std::string token = {};
  /// Bytes so far and altogether (0: not known), now and then.
  std::function<void(int64_t done, int64_t total)> on_progress = {};
};

/// Fetches a file into its part, verifies it, and renames it: `destination` is never there half. What an
/// earlier attempt left is continued where the server can, otherwise the file is fetched from its start. Processes that
/// want the same file wait for the first. Throws DataError with what went wrong at each url.
void download(const Download& job);
/// The same, of which report_progress tells (network.h): `progress` says of what file, and how large it is, if that is known.
void download(Download job, FetchProgress progress);

}  // namespace trainrun
