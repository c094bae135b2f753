#pragma once

#include <string>

#include "registry/formats/files/descriptor.h"

namespace trainrun {

/// Opens a file for reading. Throws DataError that names it (ReadError where the system refused), and at once: also for
/// a folder, a pipe, a socket or a device, for what the kernel makes up under /proc and /sys, which may block for ever
/// or never end, and for a path that the system would read up to a character of code 0 alone. Links are followed.
/// Whoever reads by path after it (a library, a stream) is warned of all these too.
Descriptor open_regular_file(const std::string& path);

}  // namespace trainrun
