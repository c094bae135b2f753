#include "runner/device/control_group.h"

#include <algorithm>
#include <fstream>
#include <sstream>
#include <string>

namespace trainrun {
namespace {

constexpr int64_t kUnlimited = INT64_C(1) << 50;  // cgroup v1 writes a huge number where there is no limit

std::optional<int64_t> number_in(const std::string& path) {
  std::ifstream file(path);
  int64_t number = 0;
  if (file >> number) return number;  // "max" is none
  return std::nullopt;
}

template <class Number>
void lower(std::optional<Number>& least, const std::optional<Number>& other) {
  if (other) least = std::min(least.value_or(*other), *other);
}

/// Pages of files, which count as used, but are given up where memory is needed.
int64_t given_up(const std::string& folder) {
  std::ifstream statistics(folder + "/memory.stat");
  int64_t sum = 0;
  for (std::string line; std::getline(statistics, line);) {
    std::istringstream words(line);
    std::string name;
    int64_t bytes = 0;
    if (words >> name >> bytes && (name == "inactive_file" || name == "total_inactive_file")) sum = bytes;
  }
  return sum;
}

void read_memory(const std::string& folder, bool is_unified, ControlGroupLimits& limits) {
  const auto limit = number_in(folder + (is_unified ? "/memory.max" : "/memory.limit_in_bytes"));
  if (!limit || *limit >= kUnlimited) return;
  lower(limits.memory, limit);
  const auto used = number_in(folder + (is_unified ? "/memory.current" : "/memory.usage_in_bytes"));
  if (used) lower<int64_t>(limits.memory_left, std::max<int64_t>(*limit - *used + given_up(folder), 0));
}

void read_cpus(const std::string& folder, bool is_unified, ControlGroupLimits& limits) {
  double quota = 0;
  double period = 0;
  if (is_unified) {
    std::ifstream(folder + "/cpu.max") >> quota >> period;  // "max" is not a number
  } else {
    std::ifstream(folder + "/cpu.cfs_quota_us") >> quota;
    std::ifstream(folder + "/cpu.cfs_period_us") >> period;
  }
  if (quota > 0 && period > 0) lower<double>(limits.cpus, quota / period);
}

bool has(const std::string& controllers, const std::string& name) {
  return ("," + controllers + ",").find("," + name + ",") != std::string::npos;
}

}  // namespace

ControlGroupLimits control_group_limits(const std::string& list, const std::string& root) {
  ControlGroupLimits limits;
  std::ifstream groups(list);
  for (std::string line; std::getline(groups, line);) {  // "0::/path" of version 2, "7:cpu,cpuacct:/path" of version 1
    const size_t first = line.find(':');
    const size_t second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const bool is_unified = controllers.empty();
    for (std::string group = line.substr(second + 1);; group.erase(group.rfind('/'))) {
      const std::string inner = group == "/" ? "" : group;
      if (is_unified || has(controllers, "memory"))
        read_memory(root + (is_unified ? "" : "/memory") + inner, is_unified, limits);
      if (is_unified || has(controllers, "cpu"))
        read_cpus(root + (is_unified ? "" : "/cpu") + inner, is_unified, limits);
      if (inner.find('/') == std::string::npos) break;
    }
  }
  return limits;
}

}  // namespace trainrun
