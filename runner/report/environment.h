#pragma once

#include <string>
#include <utility>
#include <vector>

namespace trainrun {

/// What a bug report needs to know of this machine and this build: {"CPU", "AMD EPYC …"}, …. Reads, changes nothing.
std::vector<std::pair<std::string, std::string>> describe_environment();

}  // namespace trainrun
