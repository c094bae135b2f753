#pragma once

#include <string>

#include "registry/formats/files/descriptor.h"

namespace trainrun {

/// Held by one process at a time, on any machine that shares the file system, as far as that has locks. The file stays.
class FileLock {
 public:
  /// Waits for whoever holds it. Throws FileError.
  explicit FileLock(const std::string& path);

 private:
  Descriptor file_;
};

}  // namespace trainrun
