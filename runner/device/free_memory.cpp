#include "runner/device/free_memory.h"

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <optional>
#include <sstream>

#include "registry/language/error.h"
#include "runner/base/byte_size.h"

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

std::optional<int64_t> number_in(const std::string& path) {
  std::ifstream file(path);
  int64_t number = 0;
  if (file >> number) return number;  // "max" is none
  return std::nullopt;
}

/// What the limits of control group `folder` leave. Pages of files count as used there, but are given up where memory is
/// needed.
std::optional<int64_t> left_in(const std::string& folder, const char* limit_file, const char* used_file) {
  const auto limit = number_in(folder + limit_file);
  const auto used = number_in(folder + used_file);
  if (!limit || !used) return std::nullopt;
  int64_t given_up = 0;
  std::ifstream statistics(folder + "/memory.stat");
  for (std::string line; std::getline(statistics, line);) {
    std::istringstream words(line);
    std::string name;
    int64_t bytes = 0;
    if (words >> name >> bytes && (name == "inactive_file" || name == "total_inactive_file")) given_up = bytes;
  }
  return std::max<int64_t>(*limit - *used + given_up, 0);
}

/// The least that this process's control groups, and those around them, leave.
std::optional<int64_t> left_in_groups() {
  std::optional<int64_t> least;
  const auto take = [&](const std::optional<int64_t>& left) {
    if (left) least = std::min(least.value_or(*left), *left);
  };
  std::ifstream groups("/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    const size_t first = line.find(':');
    const size_t second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const bool is_unified = controllers.empty();
    if (!is_unified && controllers != "memory") continue;
    const std::string root = is_unified ? "/sys/fs/cgroup" : "/sys/fs/cgroup/memory";
    for (std::string group = line.substr(second + 1);; group.erase(group.rfind('/'))) {
      const std::string folder = root + (group == "/" ? "" : group);
      take(is_unified ? left_in(folder, "/memory.max", "/memory.current")
                      : left_in(folder, "/memory.limit_in_bytes", "/memory.usage_in_bytes"));
      if (group.empty() || group == "/") break;
    }
  }
  return least;
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
  return std::min(*available, left_in_groups().value_or(*available));
}

int64_t memory_of_process(const std::string& figure) { return figure_of("/proc/self/status", figure).value_or(0); }

}  // namespace trainrun
