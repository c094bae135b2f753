#include <dlfcn.h>

#include <filesystem>

#include "registry/plugin.h"

namespace trainrun {
namespace {

template <class Function>
Function* symbol(void* library, const std::string& path, const char* name) {
  if (void* found = dlsym(library, name)) return reinterpret_cast<Function*>(found);
  throw PluginError(path + " is no trainrun plugin: it has no " + name +
                    "; write TRAINRUN_PLUGIN(catalog) { … } in it");
}

}  // namespace

void load_plugin(const std::string& path, Catalog& catalog) {
  if (!std::filesystem::exists(path)) throw PluginError("there is no plugin " + path);
  const std::string absolute = std::filesystem::absolute(path);
  void* library = dlopen(absolute.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    std::string reason = dlerror();
    if (reason.starts_with(absolute + ": ")) reason.erase(0, absolute.size() + 2);
    throw PluginError("the plugin " + path + " cannot be opened: " + reason +
                      "; build it with trainrun_add_plugin() of this trainrun's CMake package");
  }
  // Never closed: the catalog, layers and exceptions refer to its code. One that is refused is of no further use
  // either, but what it registered with LibTorch while it was opened stays.
  const std::string abi = symbol<const char*()>(library, path, "trainrun_plugin_abi")();
  if (abi != TRAINRUN_ABI) {
    throw PluginError("the plugin " + path + " was built for " + abi + ", this is " TRAINRUN_ABI "; build it again");
  }
  auto* const add = symbol<void(Catalog&)>(library, path, "trainrun_plugin_register");
  Catalog extended = catalog;  // a plugin that fails half-way leaves nothing behind
  extended.for_each([&](auto& registry) { registry.set_origin(path); });
  try {
    add(extended);
  } catch (const PluginError& error) {
    throw PluginError("the plugin " + path + ": " + error.what());
  } catch (const std::exception& error) {
    throw PluginError("the plugin " + path + " failed while it registered its components: " + error.what());
  }
  extended.for_each([&](auto& registry) { registry.set_origin(""); });
  catalog = std::move(extended);
}

}  // namespace trainrun
