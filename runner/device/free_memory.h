#pragma once

#include <cstdint>
#include <string>

namespace trainrun {

/// The memory that this process may still take on this machine: what the system calls available, or what the limits of
/// its control groups leave of that. `TRAINRUN_MEMORY` (`4GB`) takes their place. Throws Error where that is not a size,
/// or where the system says nothing.
int64_t free_memory();

/// Of this process, as `/proc/self/status` calls it: `VmRSS`, `VmHWM` (the most that VmRSS was), `RssFile`. In bytes; 0
/// where the system does not say.
int64_t memory_of_process(const std::string& figure);

}  // namespace trainrun
