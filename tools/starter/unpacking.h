#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tools/starter/bundle_file.h"

namespace trainrun::starter {

/// A folder of the bundle: the program, the run, its data.
struct Part {
  std::string name;
  std::string digest;  // SHA-256 of its list of files, and so of all that is in it
  uint64_t bytes = 0;  // unpacked
};

/// Where its files lie within `root`, whether they are there or not.
std::string folder_of(const Part& part, const std::string& root);

/// Whether all files of the part are there, each as long as it should be.
bool is_unpacked(const Part& part, const std::string& root);

/// Unpacks the part into `root` unless it is there, and returns its folder. The folder gets its name once it is whole and
/// every digest was checked; of processes that start at the same moment one unpacks and the others wait. Throws
/// BundleError, and leaves nothing behind.
std::string unpack(const BundleFile& bundle, const Part& part, const std::string& root);

}  // namespace trainrun::starter
