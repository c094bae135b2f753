#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "registry/catalog.h"

namespace trainrun {

struct BundleOptions {
  std::string run;     // a run's folder (its best checkpoint, else its newest), or a checkpoint's
  std::string output;  // the file to write
  bool with_data = false;
  int level = 0;                             // of zstd's compression
  std::map<std::string, std::string> verbs;  // those whose first argument is a "run" or a "recipe"
};

struct BundleReport {
  int64_t bytes = 0;     // of the file
  int64_t unpacked = 0;  // of what it unpacks to
  std::vector<std::string> notes;
};

/// Writes one executable file with the run, this program and the libraries that it needs, but for glibc's. The run is
/// opened as for predictions first. The file appears whole or not at all. Throws Error where there is no such run, or a
/// part of it is not there.
BundleReport write_bundle(const BundleOptions& options, Catalog& catalog);

}  // namespace trainrun
