#pragma once

#include <string>

#include "registry/formats/web/hub_name.h"

namespace trainrun {

/// Throws DataError where the network may not be opened for `named`, which a recipe says: the program does not allow it,
/// or a variable forbids it. `what`: it, as the message begins; `from`: a URL.
void require_network(const std::string& named, const std::string& what, const std::string& from, HubKind kind);

}  // namespace trainrun
