#include <algorithm>
#include <cctype>
#include <cstdio>
#include <filesystem>
#include <memory>

#include "runner/interop/job_file.h"
#include "tools/accelerate_option.h"
#include "tools/verbs.h"

namespace trainrun {
namespace {

struct LaunchArguments {
  RecipeArguments recipe;
  std::string accelerate;
  std::string launcher;
  JobFileOptions options;
};

[[noreturn]] void refuse(const std::string& message) { throw RecipeError({{{}, "", "trainrun launch: " + message}}); }

/// Options that the launcher has no place for, or that would break its file.
void check_options(const LaunchArguments& arguments) {
  const JobFileOptions& options = arguments.options;
  const auto only_for = [&](const char* option, const std::string& value, const std::string& launcher) {
    if (!value.empty() && arguments.launcher != launcher) refuse(std::string(option) + " is for --emit " + launcher);
    const auto is_odd = [](unsigned char c) { return std::isspace(c) || std::iscntrl(c); };
    if (std::any_of(value.begin(), value.end(), is_odd))
      refuse(std::string(option) + ": '" + value + "' is not a single word");
  };
  only_for("--image", options.image, "kubernetes");
  only_for("--partition", options.partition, "slurm");
  only_for("--time", options.time, "slurm");
  if (arguments.launcher == "kubernetes" && options.image.empty()) {
    refuse("--emit kubernetes needs --image, the container image that has trainrun in it");
  }
}

/// What the job calls: this program, or the one in the image.
std::string program_path(const std::string& launcher) {
  if (launcher == "kubernetes") return "trainrun";
  return std::filesystem::read_symlink("/proc/self/exe").string();
}

void emit(LaunchArguments& arguments, Program& program) {
  check_options(arguments);
  const RecipeArguments& recipe = arguments.recipe;
  const AccelerateConfig config = read_accelerate_option(arguments.accelerate);
  const LoadedRecipe loaded = load_recipe(recipe.path, config, recipe.overrides, program.catalog);
  print_notes(config, program);
  JobFileOptions& options = arguments.options;
  options.program = program_path(arguments.launcher);
  options.arguments = {recipe.path};
  if (!arguments.accelerate.empty())
    options.arguments.insert(options.arguments.begin(), {"--accelerate-config", arguments.accelerate});
  options.arguments.insert(options.arguments.end(), recipe.overrides.begin(), recipe.overrides.end());
  std::fputs(job_file(arguments.launcher, loaded.recipe, options).c_str(), stdout);
}

}  // namespace

void add_launch(CLI::App& app, Program& program) {
  CLI::App* verb = app.add_subcommand("launch", "print a job file for a cluster, or the command of a launcher");
  const auto arguments = std::make_shared<LaunchArguments>();
  add_recipe_arguments(*verb, arguments->recipe);
  add_accelerate_option(*verb, arguments->accelerate);
  verb->add_option("--emit", arguments->launcher, "the launcher that starts the processes")
      ->required()
      ->check(CLI::IsMember(job_launchers()));
  verb->add_option("--image", arguments->options.image, "kubernetes: the container image that has trainrun in it");
  verb->add_option("--partition", arguments->options.partition, "slurm: the partition in which to queue the job");
  verb->add_option("--time", arguments->options.time, "slurm: the time limit of the job, such as 4:00:00");
  verb->callback([&program, arguments] { emit(*arguments, program); });
}

}  // namespace trainrun
