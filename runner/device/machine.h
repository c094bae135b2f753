#pragma once

#include <nlohmann/json.hpp>

#include <string>

namespace trainrun {

/// "AMD EPYC 7B13", as the system calls this machine's processor; "" where it does not say.
std::string processor_name();

/// What of this machine and process a run's numbers may depend on, for comparing runs: {"processor": …, "threads": 2,
/// "kernels": "avx512"}.
nlohmann::json machine_facts();

}  // namespace trainrun
