#include "tools/command_line.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <map>
#include <optional>

#include "registry/data/data_files.h"
#include "registry/language/error.h"
#include "registry/language/hints.h"

namespace trainrun {
namespace {

std::vector<std::string> verbs_of(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* verb : app.get_subcommands([](const CLI::App*) { return true; })) {
    names.push_back(verb->get_name());
  }
  return names;
}

/// The verb that other programs call `word`, or one that is nearly spelled so, or "".
std::string near_verb(const std::string& word, const std::vector<std::string>& verbs) {
  static const std::map<std::string, std::string> others = {
      {"train", "run"},       {"fit", "run"},          {"start", "run"},      {"test", "eval"},
      {"evaluate", "eval"},   {"check", "validate"},   {"lint", "validate"},  {"show", "explain"},
      {"summary", "explain"}, {"describe", "explain"}, {"info", "env"},       {"doctor", "env"},
      {"ls", "list"},         {"components", "list"},  {"submit", "launch"},  {"compare", "diff"},
      {"infer", "predict"},   {"sample", "generate"},  {"convert", "export"}, {"resume", "run"},
      {"version", "env"},     {"bench", "profile"},    {"tune", "sweep"},     {"hpo", "sweep"},
      {"search", "sweep"},    {"optimize", "sweep"}};
  const auto it = others.find(word);
  const bool is_known = it != others.end() && std::find(verbs.begin(), verbs.end(), it->second) != verbs.end();
  return is_known ? it->second : nearest(word, verbs);
}

/// A word without a dot or a slash, where there is no such file, is not a recipe's path: those end in .yaml.
bool may_be_verb(const std::string& word) {
  std::error_code unreadable;
  return word.find_first_of("./=") == std::string::npos && !std::filesystem::exists(word, unreadable);
}

}  // namespace

std::vector<std::string> expanded(std::vector<std::string> arguments, const CLI::App& app) {
  const auto first = std::find_if(arguments.begin(), arguments.end(),
                                  [](const std::string& argument) { return !argument.starts_with('-'); });
  if (first == arguments.end()) return arguments;
  const std::vector<std::string> verbs = verbs_of(app);
  const auto is_verb = [&](const std::string& word) {
    return std::find(verbs.begin(), verbs.end(), word) != verbs.end();
  };
  if (is_verb(*first)) return arguments;
  if (*first == "help") {
    const bool of_verb = first + 1 != arguments.end() && is_verb(*(first + 1));
    return of_verb ? std::vector<std::string>{*(first + 1), "--help"} : std::vector<std::string>{"--help"};
  }
  if (may_be_verb(*first)) {
    std::error_code unreadable;
    const bool lacks_ending = std::filesystem::exists(*first + ".yaml", unreadable);
    const std::string near = lacks_ending ? *first + ".yaml" : near_verb(*first, verbs);
    throw RecipeError({{{},
                        "",
                        "trainrun: there is no file or verb '" + *first + "'" +
                            (near.empty() ? "; verbs: " + join(verbs) : "; did you mean " + near + "?")}});
  }
  arguments.insert(arguments.begin(), "run");  // before options that have a value
  return arguments;
}

std::vector<std::string> with_shipped_recipes(std::vector<std::string> arguments) {
  for (std::string& word : arguments) {
    std::error_code unreadable;
    const bool may_be_shipped = word.starts_with("recipes/") && word.ends_with(".yaml");
    if (!may_be_shipped || std::filesystem::exists(word, unreadable)) continue;
    const std::optional<std::string> shipped = find_shipped_file(word);
    if (!shipped) continue;  // the verb says that there is no such file
    std::fprintf(stderr, "trainrun: there is no %s here; this is %s\n", word.c_str(), shipped->c_str());
    word = *shipped;
  }
  return arguments;
}

std::string option_hint(const std::string& message) {
  const size_t dashes = message.find(" --");
  if (dashes == std::string::npos) return "";
  const std::string text = message.substr(dashes + 3, message.find(' ', dashes + 3) - dashes - 3);
  const size_t equals = text.find('=');
  const std::string key = text.substr(0, equals);
  const std::string value = equals == std::string::npos ? "VALUE" : text.substr(equals + 1);
  const std::string place = place_in_recipe(key);
  if (place.empty() && key.find('.') == std::string::npos) return "";
  return "there is no option --" + key +
         "; a recipe's values are changed without dashes: " + (place.empty() ? key : place) + "=" + value;
}

std::string unwritten_output() {
  const bool failed_before = std::ferror(stdout) != 0;
  errno = 0;
  if (std::fflush(stdout) == 0 && !failed_before) return "";
  return errno != 0 ? std::strerror(errno) : "an earlier line was lost";
}

}  // namespace trainrun
