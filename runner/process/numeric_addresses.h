#pragma once

#include <string>

namespace trainrun {

/// Has LibTorch's network code name hosts by their numbers. Returns why it does not, or "".
std::string name_hosts_by_number();

}  // namespace trainrun
