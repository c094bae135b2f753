#pragma once

#include <chrono>
#include <optional>
#include <string>

namespace trainrun {

/// What a run answers.
struct ControlAnswer {
  bool is_done = false;
  std::string text;
};

/// Sends one line to the run in `folder` and waits for its answer, for `patience` at most (none: as long as it takes).
/// Throws Error that says why there is no answer.
ControlAnswer ask_run(const std::string& folder, const std::string& line,
                      std::optional<std::chrono::milliseconds> patience = std::nullopt);

/// Whether the folder has a socket, though perhaps nobody listens at it.
bool has_control_socket(const std::string& folder);

}  // namespace trainrun
