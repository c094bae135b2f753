#pragma once

#include <string>
#include <vector>

namespace trainrun {

/// Something that trainrun changes of its whole process: of LibTorch, of the C library or of what the system allows it.
struct ProcessChange {
  const char* name;
  const char* what;  // is changed
  const char* why;
  const char* when;  // it is made, for those that are not made at the start
  /// Of a change that is made at the start: makes it, once, and returns why it cannot be made, or "".
  std::string (*install)() = nullptr;
  bool serves_libraries = false;  // registry/ and runner/ count on it, in any program
};

/// All of them, in the order in which they are made.
const std::vector<ProcessChange>& process_changes();

/// Makes the changes of the start: called by `main`, before anything else. Calling it again changes nothing.
void install_process_changes();
/// Makes those alone that the libraries count on, for other programs: tests.
void install_library_changes();

/// What has become of a change: "installed", why it is not, or when it is made.
std::string status_of(const ProcessChange& change);

}  // namespace trainrun
