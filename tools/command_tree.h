#pragma once

#include <CLI/CLI.hpp>

#include <string>
#include <vector>

namespace trainrun {

/// An option of a verb, or one of its arguments.
struct OptionEntry {
  std::vector<std::string> names;  // "--output", "-o"; of an argument, its name alone: "recipe"
  std::string description;
  std::vector<std::string> choices;  // where only these are allowed
  bool is_argument = false;
  bool takes_value = false;
  bool is_required = false;
  bool repeats = false;
};

/// A verb, or a verb of a verb ("tokenizer train"), as the command line knows it; its options are those that it adds.
struct VerbEntry {
  std::vector<std::string> words;  // {"tokenizer", "train"}; {} for the program itself
  std::string description;
  std::vector<OptionEntry> options;
  std::vector<VerbEntry> verbs;
};

/// What completion and the manual page are made of.
VerbEntry command_tree(const CLI::App& app);

/// A script that completes verbs, options and their values; shell: bash, zsh or fish. `keys`: those of recipes
/// ("optimizer", "training.max_steps"), which verbs with overrides take.
std::string completion_script(const VerbEntry& program, const std::vector<std::string>& keys, const std::string& shell);

/// The manual page trainrun(1), for groff -man.
std::string manual_page(const VerbEntry& program, const std::string& version);

}  // namespace trainrun
