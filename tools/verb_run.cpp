#include <memory>

#include "runner/device.h"
#include "runner/distributed/launcher.h"
#include "runner/train_loop.h"
#include "tools/verbs.h"

namespace trainrun {
namespace {

/// What to do with the processes that the recipe and whoever started this one speak of. Throws Error where they differ.
void check_processes(const Recipe& recipe, const Rendezvous& rendezvous) {
  const std::string started = rendezvous.launcher + " started " + std::to_string(rendezvous.world_size) + " processes";
  if (recipe.distributed_type == "NO" && rendezvous.world_size > 1) {
    throw Error(started + ", the recipe's distributed_type is 'NO'; write MULTI_CPU");
  }
  if (recipe.num_processes != 1 && recipe.num_processes != rendezvous.world_size) {
    throw Error(started + ", the recipe's num_processes is " + std::to_string(recipe.num_processes) +
                "; leave it out, or make them alike");
  }
}

}  // namespace

void add_run(CLI::App& app, Program& program) {
  CLI::App* verb = app.add_subcommand("run", "train what a recipe says");
  const auto arguments = std::make_shared<RecipeArguments>();
  add_recipe_arguments(*verb, *arguments);
  verb->callback([&program, arguments] {
    prepare_device(arguments->path, arguments->overrides);
    const LoadedRecipe loaded = load_recipe(arguments->path, arguments->overrides, program.catalog);
    const Recipe& recipe = loaded.recipe;
    const auto rendezvous = rendezvous_from_environment(recipe.main_process_ip, recipe.main_process_port);
    if (rendezvous) check_processes(recipe, *rendezvous);
    if (!rendezvous && recipe.num_processes > 1) {
      const int64_t last = recipe.num_processes / recipe.num_machines - 1;  // of this machine: is there a GPU for it?
      choose_device({recipe.device, recipe.distributed_type, last, recipe.num_processes});
      program.exit_code = launch(recipe.num_processes, program.arguments, recipe.distributed.timeout);
      return;
    }
    Job job(loaded, {program.quiet, program.verbose, rendezvous});
    const int signal = train(job);
    program.exit_code = signal == 0 ? kDone : 128 + signal;
  });
}

}  // namespace trainrun
