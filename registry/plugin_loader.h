#pragma once

#include <string>
#include <string_view>

namespace trainrun {

class Catalog;

/// What a plugin says that it was built for.
struct PluginAbi {
  std::string_view tag;      ///< TRAINRUN_ABI
  std::string_view section;  ///< of the plugin's file, where the tag lies
};
const PluginAbi& own_plugin_abi();

/// Opens the shared library at `path` and lets it add its components to `catalog`. It stays open for the life of the
/// process. Because opening a library runs its code, a file that is not marked as a plugin for this trainrun is not
/// opened. Throws PluginError if the file cannot be opened, is not a plugin, was built for another trainrun or
/// LibTorch, registers a name that is taken, or if its registration throws.
void load_plugin(const std::string& path, Catalog& catalog);

}  // namespace trainrun
