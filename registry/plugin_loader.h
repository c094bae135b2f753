#pragma once

#include <string>

#include "registry/catalog.h"

namespace trainrun {

/// Opens the shared library at `path` and lets it add its components to `catalog`. It stays open for the life of the
/// process. A file that does not say it is a plugin for this trainrun is not opened: opening runs code. Throws
/// PluginError: cannot be opened, is no plugin, was built for another trainrun or LibTorch, takes a name that is taken,
/// or its registration throws.
void load_plugin(const std::string& path, Catalog& catalog);

}  // namespace trainrun
