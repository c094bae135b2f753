#pragma once

#include <string>

#include "registry/language/error.h"

namespace trainrun {

/// "; there is ./berts here: did you mean that?" where a value that has the form of a hub's name is nearly the path of
/// something that is there; or "".
std::string near_path_hint(const std::string& named);

/// Calls `fetch`, and adds the hint to what goes wrong.
template <class Fetch>
auto with_near_path(const std::string& named, const Fetch& fetch) {
  try {
    return fetch();
  } catch (const DataError& error) {
    const std::string hint = near_path_hint(named);
    if (hint.empty()) throw;
    throw DataError(error.what() + hint);
  }
}

}  // namespace trainrun
