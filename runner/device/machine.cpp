#include "runner/device/machine.h"

#include <ATen/Parallel.h>

#include <fstream>

#include "registry/kernels/cpu_path.h"

namespace trainrun {

std::string processor_name() {
  constexpr std::string_view kKey = "model name";
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    const size_t colon = line.find(':');
    if (!line.starts_with(kKey) || colon == std::string::npos) continue;
    const size_t begin = line.find_first_not_of(" \t", colon + 1);
    return begin == std::string::npos ? "" : line.substr(begin, line.find_last_not_of(" \t") + 1 - begin);
  }
  return "";
}

nlohmann::json machine_facts() {
  return {{"processor", processor_name()},
          {"threads", at::get_num_threads()},
          {"kernels", kernels::name_of(kernels::best_cpu_path())}};
}

}  // namespace trainrun
