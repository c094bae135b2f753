#pragma once

#include <exception>
#include <string>

#include "registry/language/error.h"

namespace trainrun {

/// Throws, for `error`, which is being handled, a fault of the recipe at `place`: `what` and the error's text. What is a
/// fault with a place of its own already passes, and so does memory that could not be had.
[[noreturn]] void throw_fault(const Place& place, const std::string& path, const std::string& what,
                              const std::exception& error);

/// What `body` returns; what it throws becomes a fault of the recipe at `place`, as `throw_fault` says.
template <class Body>
auto at_place(const Place& place, const std::string& path, const std::string& what, const Body& body) {
  try {
    return body();
  } catch (const std::exception& error) {
    throw_fault(place, path, what, error);
  }
}

}  // namespace trainrun
