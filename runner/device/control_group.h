#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace trainrun {

/// What the control groups of this process (a container's, a Slurm job's), and those around them, allow it: the tightest of
/// their limits. cgroup v2 and v1.
struct ControlGroupLimits {
  std::optional<int64_t> memory;       // bytes; nothing: unlimited
  std::optional<int64_t> memory_left;  // bytes that are not used yet, pages of files that can be given up included
  std::optional<double> cpus;          // CPUs' worth of time
};

/// `list` names the groups; their files are below `root`.
ControlGroupLimits control_group_limits(const std::string& list = "/proc/self/cgroup",
                                        const std::string& root = "/sys/fs/cgroup");

}  // namespace trainrun
