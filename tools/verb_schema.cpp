#include <cstdio>
#include <memory>

#include "runner/recipe/recipe_schema.h"
#include "tools/plugins.h"
#include "tools/verbs.h"

namespace trainrun {

void add_schema(CLI::App& app, Program& program) {
  CLI::App* verb = app.add_subcommand("schema", "print the JSON Schema of recipes, for editors");
  const auto plugins = std::make_shared<std::vector<std::string>>();
  add_plugin_option(*verb, *plugins);
  verb->callback([&program, plugins] {
    load_plugins(*plugins, program.catalog);
    std::printf("%s\n", recipe_schema(program.catalog).dump(2).c_str());
  });
}

}  // namespace trainrun
