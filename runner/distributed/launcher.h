#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace trainrun {

/// Starts `num_processes` processes of this program with `arguments`, one a rank, and waits for them. SIGINT and
/// SIGTERM are passed on. Where one fails, the others are stopped: those that do not end by themselves within
/// `grace_seconds` are killed; a line says which was the first. Killed itself, it takes them along. Returns the exit
/// code: of the first that failed, 128+N where a signal ended it.
int launch(int64_t num_processes, const std::vector<std::string>& arguments, int64_t grace_seconds);

}  // namespace trainrun
