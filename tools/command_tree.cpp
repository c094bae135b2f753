#include "tools/command_tree.h"

#include <algorithm>

namespace trainrun {
namespace {

/// Of "TEXT:{bash,zsh,fish}" the words within braces.
std::vector<std::string> choices_in(const std::string& type) {
  const size_t open = type.find('{'), close = type.rfind('}');
  if (open == std::string::npos || close == std::string::npos || close < open) return {};
  std::vector<std::string> choices;
  for (size_t begin = open + 1; begin < close;) {
    const size_t end = std::min(type.find(',', begin), close);
    choices.push_back(type.substr(begin, end - begin));
    begin = end + 1;
  }
  return choices;
}

OptionEntry entry_of(const CLI::Option& option) {
  OptionEntry entry;
  for (const std::string& name : option.get_lnames()) entry.names.push_back("--" + name);
  for (const std::string& name : option.get_snames()) entry.names.push_back("-" + name);
  entry.is_argument = entry.names.empty();
  if (entry.is_argument) entry.names.push_back(option.get_name(/*positional=*/true));
  entry.description = option.get_description();
  entry.choices = choices_in(option.get_type_name());
  entry.takes_value = option.get_items_expected_max() > 0;
  entry.is_required = option.get_required();
  entry.repeats = option.get_items_expected_max() > 1;
  return entry;
}

VerbEntry tree_of(const CLI::App& app, std::vector<std::string> words) {
  VerbEntry verb{std::move(words), app.get_description(), {}, {}};
  for (const CLI::Option* option : app.get_options()) verb.options.push_back(entry_of(*option));
  for (const CLI::App* below : app.get_subcommands([](const CLI::App*) { return true; })) {
    std::vector<std::string> of_below = verb.words;
    of_below.push_back(below->get_name());
    verb.verbs.push_back(tree_of(*below, std::move(of_below)));
  }
  return verb;
}

}  // namespace

VerbEntry command_tree(const CLI::App& app) { return tree_of(app, {}); }

}  // namespace trainrun
