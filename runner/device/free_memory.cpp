#include "runner/device/free_memory.h"

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <optional>
#include <sstream>

#include "registry/language/error.h"
#include "runner/base/byte_size.h"
#include "runner/device/control_group.h"

namespace trainrun {
namespace {

constexpr int64_t kKibi = 1024;

/// The number after `NAME:` in a file of /proc, in bytes.
std::optional<int64_t> figure_of(const char* path, const std::string& name) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with(name + ":")) continue;
    std::istringstream rest(line.substr(name.size() + 1));
    int64_t kibibytes = 0;
    if (rest >> kibibytes) return kibibytes * kKibi;
  }
  return std::nullopt;
}

}  // namespace

int64_t free_memory() {
  if (const char* given = std::getenv("TRAINRUN_MEMORY")) {
    if (const auto bytes = parse_bytes(given)) return *bytes;
    throw Error("TRAINRUN_MEMORY is '" + std::string(given) + "'; expected a size such as 8GB or 512MiB");
  }
  const auto available = figure_of("/proc/meminfo", "MemAvailable");
  if (!available) {
    throw Error("/proc/meminfo does not say how much memory is available; set TRAINRUN_MEMORY, to 8GB for example");
  }
  return std::min(*available, control_group_limits().memory_left.value_or(*available));
}

int64_t memory_of_process(const std::string& figure) { return figure_of("/proc/self/status", figure).value_or(0); }

}  // namespace trainrun
