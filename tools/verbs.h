#pragma once

#include <CLI/CLI.hpp>

#include <string>
#include <vector>

#include "registry/catalog.h"

namespace trainrun {

/// What every verb works with.
struct Program {
  Catalog catalog;
  std::vector<std::string> arguments;  // as the program was called, its own name first
  bool quiet = false;
  bool verbose = false;
  int exit_code = 0;
};

/// A recipe and its overrides, as most verbs take them.
struct RecipeArguments {
  std::string path;
  std::vector<std::string> overrides;
};

/// The exit codes of the program; 128 + N when stopped by signal N.
enum ExitCode { kDone = 0, kJobFailed = 1, kWrongInput = 2, kDoesNotFit = 3 };

/// Adds `RECIPE [key=value …]` to a verb.
void add_recipe_arguments(CLI::App& verb, RecipeArguments& arguments);

// Each adds one verb to the command line; its callback does the work and sets program.exit_code.
void add_run(CLI::App& app, Program& program);
void add_validate(CLI::App& app, Program& program);
void add_explain(CLI::App& app, Program& program);
void add_profile(CLI::App& app, Program& program);
void add_data(CLI::App& app, Program& program);
void add_lr_find(CLI::App& app, Program& program);
void add_predict(CLI::App& app, Program& program);
void add_generate(CLI::App& app, Program& program);
void add_list(CLI::App& app, Program& program);
void add_schema(CLI::App& app, Program& program);
void add_eval(CLI::App& app, Program& program);
void add_export(CLI::App& app, Program& program);
void add_env(CLI::App& app, Program& program);
void add_config(CLI::App& app, Program& program);
void add_tokenizer(CLI::App& app, Program& program);
void add_launch(CLI::App& app, Program& program);
void add_completion(CLI::App& app, Program& program);
void add_runs(CLI::App& app, Program& program);
void add_diff(CLI::App& app, Program& program);
void add_report(CLI::App& app, Program& program);
void add_sweep(CLI::App& app, Program& program);
void add_replay(CLI::App& app, Program& program);
void add_bisect(CLI::App& app, Program& program);
void add_top(CLI::App& app, Program& program);
void add_ctl(CLI::App& app, Program& program);
void add_bundle(CLI::App& app, Program& program);
void add_init(CLI::App& app, Program& program);

}  // namespace trainrun
