#pragma once

#include <string>
#include <vector>

#include "runner/foresight/rehearsal.h"

namespace trainrun {

/// Before the JSON that the process prints.
inline constexpr const char* kRehearsalMark = "rehearsal: ";

/// What came of a rehearsal in a process of its own.
struct RehearsalResult {
  std::optional<Rehearsal> rehearsal;
  bool was_killed = false;    // the system killed it, or it could not get the memory that it asked for
  std::string error;          // what else went wrong: what the process said
  bool is_too_small = false;  // what it said is that batches of so few samples cannot be trained, as BatchNorm does
};

/// Has this program, called with `arguments` (its own name first), rehearse a job and print what it found as JSON. Should
/// memory run out, the system kills that process first. Throws Error where it cannot be started.
RehearsalResult rehearse_apart(std::vector<std::string> arguments, RehearsalAim aim);

}  // namespace trainrun
