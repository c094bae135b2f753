#pragma once

#include <cstdint>
#include <fstream>
#include <string>

namespace trainrun::test {

/// Of this process, in bytes.
inline int64_t address_space() {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    int64_t kilobytes = 0;
    if (word == "VmSize:" && status >> kilobytes) return kilobytes << 10;
  }
  return 0;
}

}  // namespace trainrun::test
