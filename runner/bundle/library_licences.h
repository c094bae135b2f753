#pragma once

#include <map>
#include <string>
#include <vector>

namespace trainrun {

struct LibraryLicences {
  std::map<std::string, std::string> files;  // by name, "libcurl4/copyright", "torch-2.11.0/LICENSE": their paths
  std::vector<std::string> unknown;          // paths of libraries of which no licence was found
};

/// The licences of these libraries: those of the Python packages that they lie in, or of the Debian packages that own
/// them.
LibraryLicences licences_of(const std::vector<std::string>& libraries);

}  // namespace trainrun
