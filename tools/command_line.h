#pragma once

#include <CLI/CLI.hpp>

#include <string>
#include <vector>

namespace trainrun {

/// What was meant by a command line: `trainrun recipe.yaml …` is `trainrun run recipe.yaml …`, `trainrun help VERB` is
/// `trainrun VERB --help`. Throws RecipeError for a word that is neither a verb nor a file, but near a verb.
std::vector<std::string> expanded(std::vector<std::string> arguments, const CLI::App& app);

/// `arguments`, where a word like recipes/digits_cnn.yaml, of which there is no such file here, is the recipe of that
/// name that comes with trainrun. Says so on standard error.
std::vector<std::string> with_shipped_recipes(std::vector<std::string> arguments);

/// What to do about options that no verb has, where they look like values of a recipe: "there is no option --lr; …"; ""
/// where `message`, CLI11's, names none.
std::string option_hint(const std::string& message);

/// Flushes standard output. Returns "" or why what was printed did not arrive.
std::string unwritten_output();

}  // namespace trainrun
