#include <fcntl.h>
#include <malloc.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <new>

#include "registry/plugin_loader.h"
#include "registry/tensors/component_error.h"
#include "runner/base/secrets.h"
#include "runner/loggers/loggers.h"
#include "tools/command_line.h"
#include "tools/verbs.h"

namespace trainrun {
namespace {

/// glibc would hand the memory of every step back to the system and fetch it again for the next.
void keep_memory() {
  mallopt(M_MMAP_THRESHOLD, 1 << 30);
  mallopt(M_TRIM_THRESHOLD, INT_MAX);
  mallopt(M_TOP_PAD, 64 << 20);
}

/// Whoever started us may have closed standard input, output or error. The next file that is opened, a lock or a
/// checkpoint, would get that number, and what is printed would go into it.
void open_standard_streams() {
  constexpr std::array kStreams = {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO};
  for (const int stream : kStreams) {
    if (::fcntl(stream, F_GETFD) >= 0 || errno != EBADF) continue;
    if (::open("/dev/null", O_RDWR) < 0) std::abort();  // it gets the lowest number that is free: this one
  }
}

/// Each rank has a connection to every other one, rank 0 or the launcher one more to each: over a thousand ranks are
/// more than most systems allow a process unless it asks.
void allow_many_connections() {
  rlimit files{};
  if (getrlimit(RLIMIT_NOFILE, &files) != 0) return;
  files.rlim_cur = files.rlim_max;
  setrlimit(RLIMIT_NOFILE, &files);
}

/// Says what went wrong, in one line or, of a recipe, a line for each fault; with --verbose also what it came from.
int report(const std::exception& error, bool verbose) {
  const bool is_input = dynamic_cast<const RecipeError*>(&error) != nullptr;
  std::fprintf(stderr, "%s%s\n", is_input ? "" : "trainrun: ", without_secrets(error_text(error)).c_str());
  if (verbose && !is_input) std::fprintf(stderr, "%s\n", without_secrets(error_details(error)).c_str());
  return is_input ? kWrongInput : kJobFailed;
}

int run_program(int argc, char** argv, Program& program) {
  program.arguments = with_shipped_recipes({argv, argv + argc});
  program.catalog = builtins();
  add_loggers(program.catalog.loggers);
  CLI::App app("a training job from one recipe", "trainrun");
  app.set_version_flag("--version", "trainrun " TRAINRUN_VERSION);
  app.require_subcommand(1);
  app.fallthrough();
  app.add_flag("--quiet,-q", program.quiet, "print only errors");
  app.add_flag("--verbose,-v", program.verbose, "say more");
  app.footer(
      "trainrun RECIPE [key=value …] is short for trainrun run RECIPE [key=value …].\n"
      "Every verb takes --quiet (-q), --verbose (-v) and --help (-h).");
  for (const auto add :
       {add_run, add_validate, add_explain, add_profile, add_lr_find, add_data, add_predict, add_generate,
        add_tokenizer, add_list, add_schema, add_eval, add_export, add_env, add_config, add_launch})
    add(app, program);
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

int main(int argc, char** argv) {
  trainrun::open_standard_streams();
  trainrun::keep_memory();
  trainrun::allow_many_connections();
  const int exit_code = trainrun::run_and_report(argc, argv);
  std::fflush(nullptr);
  // LibTorch would take its thousands of operators apart one by one, which takes as long as it took to register them
  // and serves nobody. The thread of a logger that had to be left behind may still be using some of it, too.
  std::_Exit(exit_code);
}
