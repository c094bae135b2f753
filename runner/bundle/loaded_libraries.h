#pragma once

#include <string>
#include <vector>

namespace trainrun {

/// A shared library that this process has loaded.
struct LoadedLibrary {
  std::string name;  // by which others need it
  std::string path;
};

struct NeededLibraries {
  std::vector<LoadedLibrary> libraries;  // without those of glibc
  std::string glibc;                     // the oldest release that has all that the program and they need: "2.34"
};

/// The libraries that the program and `opened`, the paths of libraries that it has opened, need, directly or not; `opened`
/// are among them. What else is loaded, by LD_PRELOAD say, is not. Throws Error where one of them is not loaded.
NeededLibraries needed_libraries(const std::vector<std::string>& opened);

}  // namespace trainrun
