#include <sys/prctl.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <memory>

#include "registry/tensors/component_error.h"
#include "runner/base/signals.h"
#include "runner/device/device.h"
#include "runner/distributed/launcher.h"
#include "runner/foresight/micro_batch.h"
#include "runner/predict/folds.h"
#include "runner/recipe/recipe_defaults.h"
#include "runner/replay/first_not_finite.h"
#include "runner/run/resume_path.h"
#include "runner/train/train_loop.h"
#include "runner/train/training_error.h"
#include "tools/accelerate_option.h"
#include "tools/number_checks.h"
#include "tools/verbs.h"

namespace trainrun {
namespace {

/// What to do with the processes that the recipe and whoever started this one speak of. Throws Error where they differ.
void check_processes(const Recipe& recipe, const Rendezvous& rendezvous) {
  const std::string started = rendezvous.launcher + " started " + std::to_string(rendezvous.world_size) + " processes";
  if (recipe.distributed_type == DistributedType::kNo && rendezvous.world_size > 1) {
    throw Error(started + ", but the recipe's distributed_type is 'NO'; write MULTI_CPU");
  }
  if (recipe.num_processes != 1 && recipe.num_processes != rendezvous.world_size) {
    throw Error(started + ", but the recipe's num_processes is " + std::to_string(recipe.num_processes) +
                "; leave it out, or make the two equal");
  }
}

/// For this program to start the ranks itself. Throws RecipeError where several machines would not find each other.
LaunchOptions launch_options(const LoadedRecipe& loaded) {
  const Recipe& recipe = loaded.recipe;
  LaunchOptions options;
  options.num_processes = recipe.num_processes;
  options.num_machines = recipe.num_machines;
  options.machine_rank = recipe.machine_rank;
  options.timeout = std::chrono::seconds(recipe.distributed.meeting_timeout.value_or(recipe.distributed.timeout));
  options.pin_cores = recipe.distributed.pin_cores;
  if (recipe.num_machines == 1) return options;
  if (!recipe.main_process_ip || !recipe.main_process_port) {
    const std::string missing = !recipe.main_process_ip ? "main_process_ip, the address of machine 0"
                                                        : "main_process_port, a port that is free on machine 0";
    throw RecipeError({{loaded.resolved.find("num_machines")->place(), "num_machines",
                        std::to_string(recipe.num_machines) + " machines need an address to connect to; write " +
                            missing + ", or start them by a launcher that says so (torchrun, srun, mpirun)"}});
  }
  options.address = *recipe.main_process_ip;
  options.port = static_cast<int>(*recipe.main_process_port);
  return options;
}

/// torchrun, where it is killed, leaves its ranks behind; they then stop as if they were told to, and save.
void stop_with_torchrun(const Rendezvous& rendezvous) {
  if (rendezvous.launcher != "torchrun" || rendezvous.job.empty()) return;
  const pid_t parent = ::getppid();
  ::prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (::getppid() != parent) std::raise(SIGTERM);
}

/// What goes wrong once there is a log.txt, at a resume say, is written there, too.
std::unique_ptr<Job> build_job(const LoadedRecipe& loaded, const Job::Options& options) {
  try {
    return std::make_unique<Job>(loaded, options);
  } catch (const std::exception& error) {
    write_error_to_log(error_text(error));
    throw;
  }
}

/// Throws Error where what is trained up to that step would be lost, or it is not clear of what it is a step.
void check_stop_after(const Recipe& recipe) {
  if (!recipe.checkpoint.every) {
    throw Error(
        "--stop-after saves the state to go on from later, but checkpoint.every is null; write checkpoint.every=epoch");
  }
  if (recipe.dataset.all_folds()) throw Error("--stop-after is of one fold; write dataset.fold.index=0");
}

/// Trains, and returns the signal that ended it. Where a loss that is not finite ends it, and comes from a step before,
/// that step is looked for and told.
int train_and_explain(std::unique_ptr<Job> job, std::optional<int64_t> stop_after,
                      const std::vector<std::string>& overrides, Catalog& catalog) {
  try {
    return train(*job, stop_after);
  } catch (const NonFiniteNumbers& error) {
    if (error.is_explained() || !job->folder || !job->group->is_alone()) throw;
    const std::string folder = job->folder->path();
    job.reset();  // its memory is needed
    const std::string found = explain_not_finite(folder, overrides, error.step(), catalog);
    write_error_to_log(found);
    throw TrainingError(std::string(error.what()) + "; " + found);
  }
}

/// "dataloader.micro_batch_size=8", which takes the place of `auto`; says why on standard error.
std::string micro_batch_override(const LoadedRecipe& loaded, const RecipeArguments& arguments,
                                 const std::string& accelerate, const Program& program) {
  if (const auto others = rendezvous_from_environment(loaded.recipe.main_process_ip, loaded.recipe.main_process_port)) {
    throw Error("dataloader.micro_batch_size: auto: processes that " + others->launcher +
                " started would each find their own; write a number, such as `trainrun explain --fits` advises");
  }
  std::vector<std::string> words = {program.arguments.front(), "explain", arguments.path};
  words.insert(words.end(), arguments.overrides.begin(), arguments.overrides.end());
  if (!accelerate.empty()) words.insert(words.end(), {"--accelerate-config", accelerate});
  const MicroBatch found = find_micro_batch(loaded, [&](const std::vector<std::string>& overrides, RehearsalAim aim) {
    std::vector<std::string> all = words;
    all.insert(all.end(), overrides.begin(), overrides.end());
    return rehearse_apart(std::move(all), aim);
  });
  const std::string number = std::to_string(found.size);
  if (!program.quiet) {
    std::fprintf(stderr, "trainrun: dataloader.micro_batch_size: auto is %s: %s\n", number.c_str(),
                 found.reason.c_str());
  }
  return "dataloader.micro_batch_size=" + number;
}

/// Trains all folds of `loaded`, each by this process or by ranks of its own.
int run_folds(const LoadedRecipe& loaded, const RecipeArguments& arguments, const AccelerateConfig& config,
              const Catalog& catalog, const Program& program) {
  FoldsTraining training;
  training.quiet = program.quiet;
  training.verbose = program.verbose;
  training.catalog = catalog;
  training.train = [&](const std::vector<std::string>& overrides) {
    if (loaded.recipe.num_processes > 1) {
      std::vector<std::string> all = program.arguments;
      all.insert(all.end(), overrides.begin(), overrides.end());
      return launch(launch_options(loaded), all);
    }
    std::vector<std::string> all = arguments.overrides;
    all.insert(all.end(), overrides.begin(), overrides.end());
    Catalog own = catalog;
    const LoadedRecipe fold = load_recipe(arguments.path, config, all, own);
    const int signal = train(*build_job(fold, {program.quiet, program.verbose, std::nullopt}));
    return signal == 0 ? 0 : 128 + signal;
  };
  return train_folds(loaded, training);
}

/// Of a run that goes on, weights come from its checkpoint: those that it began with need not be there.
LoadedRecipe load_to_run(const RecipeArguments& arguments, const AccelerateConfig& config, Program& program) {
  LoadedRecipe loaded =
      load_recipe(arguments.path, config, arguments.overrides, program.catalog, InitialWeights::kUnlessResumed);
  if (loaded.missing.empty() || may_go_on(output_folder(loaded.recipe), loaded.recipe.checkpoint.resume)) return loaded;
  throw RecipeError(loaded.missing);
}

}  // namespace

void add_run(CLI::App& app, Program& program) {
  CLI::App* verb = app.add_subcommand("run", "train the job that a recipe describes");
  const auto arguments = std::make_shared<RecipeArguments>();
  const auto accelerate = std::make_shared<std::string>();
  add_recipe_arguments(*verb, *arguments);
  add_accelerate_option(*verb, *accelerate);
  const auto stop_after = std::make_shared<std::optional<int64_t>>();
  verb->add_option(
          "--stop-after", *stop_after,
          "stop after this step as if by a signal: evaluate if that is due, save, end; the same command resumes")
      ->check(whole_from(1));
  verb->callback([&program, arguments, accelerate, stop_after] {
    // Until the process is gone: a repetition that comes while it ends does not change its exit code.
    static const StopSignals& signals = *new StopSignals;
    static_cast<void>(signals);
    const AccelerateConfig config = read_accelerate_option(*accelerate);
    std::vector<std::string> all = config.overrides();
    all.insert(all.end(), arguments->overrides.begin(), arguments->overrides.end());
    prepare_device(arguments->path, all);
    const Catalog catalog = program.catalog;
    LoadedRecipe loaded = load_to_run(*arguments, config, program);
    if (loaded.recipe.dataloader.has_auto_micro_batch()) {
      const std::string found = micro_batch_override(loaded, *arguments, *accelerate, program);
      arguments->overrides.push_back(found);
      program.arguments.push_back(found);
      program.catalog = catalog;
      loaded = load_to_run(*arguments, config, program);
    }
    const Recipe& recipe = loaded.recipe;
    const auto rendezvous = rendezvous_from_environment(recipe.main_process_ip, recipe.main_process_port);
    if (!rendezvous || (rendezvous->rank == 0 && rendezvous->launcher != "trainrun")) print_notes(config, program);
    if (rendezvous) {
      check_processes(recipe, *rendezvous);
      stop_with_torchrun(*rendezvous);
    }
    if (*stop_after) check_stop_after(recipe);
    if (const auto folds = recipe.dataset.all_folds()) {
      if (rendezvous || recipe.num_machines > 1) {
        throw Error("processes that " + (rendezvous ? rendezvous->launcher : "several machines") +
                    " started train one fold at a time; write dataset.fold.index=0, and so on to " +
                    std::to_string(*folds - 1));
      }
      program.exit_code = run_folds(loaded, *arguments, config, catalog, program);
      return;
    }
    if (!rendezvous && recipe.num_processes > 1) {
      const int64_t last = recipe.num_processes / recipe.num_machines - 1;  // of this machine: is there a GPU for it?
      choose_device({recipe.device, recipe.distributed_type, last, recipe.num_processes});
      program.exit_code = launch(launch_options(loaded), program.arguments);
      return;
    }
    auto job = build_job(loaded, {program.quiet, program.verbose, rendezvous});
    Catalog own = catalog;
    const int signal = train_and_explain(std::move(job), *stop_after, {}, own);
    program.exit_code = signal == 0 ? kDone : 128 + signal;
  });
}

}  // namespace trainrun
