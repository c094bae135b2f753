#include <nlohmann/json.hpp>

#include <cstdio>
#include <memory>

#include "runner/recipe/recipe_schema.h"
#include "tools/command_tree.h"
#include "tools/verbs.h"

namespace trainrun {
namespace {

/// The properties of a mapping, which the schema describes at once or in one of two ways.
const nlohmann::json* properties_of(const nlohmann::json& schema) {
  const auto own = schema.find("properties");
  if (own != schema.end()) return &*own;
  const auto otherwise = schema.find("else");
  return otherwise == schema.end() ? nullptr : properties_of(*otherwise);
}

/// A recipe's keys, and those below them that are the same for every component: "training", "training.max_steps".
std::vector<std::string> keys_of(const Catalog& catalog) {
  std::vector<std::string> keys;
  const nlohmann::json schema = recipe_schema(catalog);
  for (const auto& [key, value] : properties_of(schema.at("definitions").at("recipe"))->items()) {
    keys.push_back(key);
    const nlohmann::json* const below = properties_of(value);
    if (below == nullptr) continue;
    for (const auto& item : below->items()) keys.push_back(key + "." + item.key());
  }
  return keys;
}

}  // namespace

void add_completion(CLI::App& app, Program& program) {
  CLI::App* verb = app.add_subcommand(
      "completion", "print a script that completes trainrun's command line in a shell, or the manual page");
  const auto what = std::make_shared<std::string>();
  verb->add_option("shell", *what,
                   "bash, zsh, fish: a script to be sourced (source <(trainrun completion bash)); man: the manual page "
                   "(trainrun completion man > trainrun.1)")
      ->required()
      ->check(CLI::IsMember({"bash", "zsh", "fish", "man"}));
  verb->callback([&app, &program, what] {
    const VerbEntry tree = command_tree(app);
    const std::string text =
        *what == "man" ? manual_page(tree, TRAINRUN_VERSION) : completion_script(tree, keys_of(program.catalog), *what);
    std::fputs(text.c_str(), stdout);
  });
}

}  // namespace trainrun
