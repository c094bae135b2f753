#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <new>

#include "registry/plugin_loader.h"
#include "registry/tensors/component_error.h"
#include "registry/tensors/rare_kernels.h"
#include "runner/base/secrets.h"
#include "runner/loggers/loggers.h"
#include "runner/loggers/torch_warnings.h"
#include "runner/process/huge_pages.h"
#include "runner/process/passive_waiting.h"
#include "runner/process/process_changes.h"
#include "runner/report/errors/error_code.h"
#include "tools/command_line.h"
#include "tools/network.h"
#include "tools/verbs.h"

namespace trainrun {
namespace {

/// Says what went wrong, in one line or, of a recipe, a line for each fault with its code; with --verbose also what it came from.
int report(const std::exception& error, bool verbose) {
  if (const auto* input = dynamic_cast<const RecipeError*>(&error)) {
    for (const Problem& problem : input->problems()) {
      std::fprintf(stderr, "%s\n", without_secrets(coded_text(problem)).c_str());
    }
    return kWrongInput;
  }
  std::fprintf(stderr, "trainrun: %s\n", without_secrets(error_text(error)).c_str());
  if (verbose) std::fprintf(stderr, "%s\n", without_secrets(error_details(error)).c_str());
  return kJobFailed;
}

int run_program(int argc, char** argv, Program& program) {
  program.arguments = with_shipped_recipes({argv, argv + argc});
  program.catalog = builtins();
  add_loggers(program.catalog.loggers);
  CLI::App app("train a model from one YAML recipe", "trainrun");
  app.set_version_flag("--version", "trainrun " TRAINRUN_VERSION);
  app.require_subcommand(1);
  app.fallthrough();
  app.add_flag("--quiet,-q", program.quiet, "print only errors");
  app.add_flag("--verbose,-v", program.verbose, "print more details");
  app.footer(
      "trainrun RECIPE [key=value …] is short for trainrun run RECIPE [key=value …].\n"
      "Every verb takes --quiet (-q), --verbose (-v) and --help (-h).");
  for (const auto add : {add_run,    add_init,    add_validate, add_explain,   add_profile, add_lr_find,   add_sweep,
                         add_data,   add_predict, add_generate, add_tokenizer, add_runs,    add_top,       add_ctl,
                         add_diff,   add_report,  add_replay,   add_bisect,    add_list,    add_schema,    add_eval,
                         add_export, add_bundle,  add_env,      add_config,    add_launch,  add_completion})
    add(app, program);
  add_network(app, program);
  std::vector<std::string> arguments = expanded({program.arguments.begin() + 1, program.arguments.end()}, app);
  std::reverse(arguments.begin(), arguments.end());  // CLI11 takes them from the end
  try {
    app.parse(arguments);
  } catch (const CLI::ParseError& error) {
    const std::string hint = option_hint(error.what());
    if (!hint.empty()) std::fprintf(stderr, "%s\n", hint.c_str());
    if (app.exit(error) != 0) return kWrongInput;
  }
  if (program.exit_code != kDone) return program.exit_code;
  const std::string fault = unwritten_output();
  if (fault.empty()) return kDone;
  std::fprintf(stderr, "trainrun: standard output cannot be written: %s\n", fault.c_str());
  return kJobFailed;
}

int run_and_report(int argc, char** argv) {
  Program program;
  try {
    return run_program(argc, argv, program);
  } catch (const std::bad_alloc&) {
    std::fprintf(stderr, "trainrun: this machine has too little memory for that\n");
    return kJobFailed;
  } catch (const std::exception& error) {
    return report(error, program.verbose);
  }
}

}  // namespace

void add_recipe_arguments(CLI::App& verb, RecipeArguments& arguments) {
  verb.add_option("recipe", arguments.path, "the recipe, a YAML file")->required();
  verb.add_option("overrides", arguments.overrides, "key=value: optimizer.lr=3e-4, model.layers[0].out_channels=64");
}

}  // namespace trainrun

/// Come before main, and before what libraries do as they are loaded.
using Initializer = void (*)(int, char**, char**);
__attribute__((section(".preinit_array"), used)) static const Initializer kBeforeMain[] = {
    &trainrun::wait_passively, &trainrun::begin_heap_with_huge_pages, &trainrun::hold_back_rare_kernels};

int main(int argc, char** argv) {
  trainrun::install_process_changes();
  trainrun::show_torch_warnings();
  const int exit_code = trainrun::run_and_report(argc, argv);
  std::fflush(nullptr);
  // LibTorch would take its thousands of operators apart one by one, which takes as long as it took to register them
  // and serves nobody. The thread of a logger that had to be left behind may still be using some of it, too.
  std::_Exit(exit_code);
}
