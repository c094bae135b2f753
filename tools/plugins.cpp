#include "tools/plugins.h"

#include "registry/plugin_loader.h"

namespace trainrun {

void add_plugin_option(CLI::App& verb, std::vector<std::string>& plugins) {
  verb.add_option("--plugin", plugins, "a plugin (shared library) whose components are added")
      ->type_name("LIB")
      ->allow_extra_args(false);
}

void load_plugins(const std::vector<std::string>& plugins, Catalog& catalog) {
  for (const std::string& plugin : plugins) {
    try {
      load_plugin(plugin, catalog);
    } catch (const PluginError& error) {
      throw RecipeError({{{}, "--plugin", error.what()}});
    }
  }
}

}  // namespace trainrun
