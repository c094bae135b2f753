#include <cstdio>
#include <memory>

#include "registry/formats/files/file_io.h"
#include "runner/report/reference.h"
#include "tools/plugins.h"
#include "tools/verbs.h"

namespace trainrun {
namespace {

struct ListArguments {
  std::string kind;
  std::string name;
  std::string markdown;  // a folder
  std::vector<std::string> plugins;
};

/// Every component called `name`, of whatever kind; "" for none.
std::string list_called(const std::vector<KindReference>& kinds, const std::string& name) {
  std::string text;
  for (const KindReference& kind : kinds) {
    const ComponentReference* component = kind.find(name);
    if (component) text += (text.empty() ? "" : "\n") + list_component(kind, *component);
  }
  return text;
}

[[noreturn]] void fail(const std::string& message) { throw RecipeError({{{}, "", "trainrun list: " + message}}); }

std::string list(const Catalog& catalog, const ListArguments& arguments) {
  const std::vector<KindReference> kinds = kinds_of(catalog);
  if (arguments.kind.empty()) return list_kinds(kinds);
  const KindReference* kind = find_kind(kinds, arguments.kind);
  if (!kind && arguments.name.empty()) {
    const std::string found = list_called(kinds, arguments.kind);
    if (!found.empty()) return found;
  }
  if (!kind) {
    std::vector<std::string> names;
    for (const KindReference& known : kinds) names.push_back(known.plural);
    if (const std::string near = nearest(arguments.kind, names); near.empty()) {
      for (const KindReference& known : kinds) {
        const std::string component = nearest(arguments.kind, known.names());
        if (!component.empty()) fail("there is no '" + arguments.kind + "'; did you mean " + component + "?");
      }
    }
    fail("there is no kind '" + arguments.kind + "'" + suggestion(arguments.kind, names));
  }
  if (arguments.name.empty()) return list_components(*kind);
  const ComponentReference* component = kind->find(arguments.name);
  if (!component) {
    fail("there is no " + kind->kind + " '" + arguments.name + "'" + suggestion(arguments.name, kind->names()));
  }
  return list_component(*kind, *component);
}

void write_pages(const Catalog& catalog, const std::string& folder, bool quiet) {
  create_folders(folder);
  for (const auto& [name, text] : reference_pages(catalog)) {
    write_file_atomically(folder + "/" + name, text);
    if (!quiet) std::printf("%s/%s\n", folder.c_str(), name.c_str());
  }
}

}  // namespace

void add_list(CLI::App& app, Program& program) {
  CLI::App* verb = app.add_subcommand("list", "list the components that recipes can name, and their parameters");
  const auto arguments = std::make_shared<ListArguments>();
  verb->add_option("kind", arguments->kind, "layers, losses, …; or the name of a component");
  verb->add_option("name", arguments->name, "of a component: Conv2d");
  verb->add_option("--markdown", arguments->markdown, "write the reference pages into this folder")->type_name("DIR");
  add_plugin_option(*verb, arguments->plugins);
  verb->callback([&program, arguments] {
    load_plugins(arguments->plugins, program.catalog);
    if (!arguments->markdown.empty()) return write_pages(program.catalog, arguments->markdown, program.quiet);
    std::fputs(list(program.catalog, *arguments).c_str(), stdout);
  });
}

}  // namespace trainrun
