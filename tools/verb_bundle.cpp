#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <filesystem>
#include <memory>

#include "registry/formats/files/file_io.h"
#include "registry/language/error.h"
#include "runner/base/text.h"
#include "runner/bundle/bundle.h"
#include "runner/recipe/recipe_source.h"
#include "runner/train/evaluation.h"
#include "tools/command_tree.h"
#include "tools/number_checks.h"
#include "tools/verbs.h"

namespace trainrun {
namespace {

constexpr int kUsualLevel = 9;

struct BundleArguments {
  BundleOptions options;
  bool force = false;
};

/// Which verbs take a run or a recipe, to which a bundle adds its own.
std::map<std::string, std::string> bundled_verbs(const CLI::App& app) {
  std::map<std::string, std::string> verbs;
  for (const VerbEntry& verb : command_tree(app).verbs) {
    for (const OptionEntry& option : verb.options) {
      if (!option.is_argument) continue;
      if (option.names[0] == "run" || option.names[0] == "recipe") verbs[verb.words.back()] = option.names[0];
      break;
    }
  }
  return verbs;
}

/// "digits.run", after the name in the run's recipe.
std::string usual_output(const std::string& run) {
  const ResolvedRecipe recipe = resolve_recipe(find_trained(run).recipe, {});
  const Value* name = recipe.value.is_map() ? recipe.value.find("name") : nullptr;
  return (name && name->is_scalar() ? name->text() : "bundle") + ".run";
}

/// A handler gets no argument. The file that is being written, which goes where a signal ends the program.
std::string unfinished;  // NOLINT(cppcoreguidelines-avoid-non-const-global-variables)

extern "C" void remove_unfinished(int signal) {
  ::unlink(unfinished.c_str());
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}

void bundle(const BundleArguments& arguments, const Program& program, Catalog& catalog) {
  BundleOptions options = arguments.options;
  if (options.output.empty()) options.output = usual_output(options.run);
  if (std::filesystem::is_directory(options.output))
    throw Error(options.output + " is a folder; name a file by --output");
  if (!arguments.force && std::filesystem::exists(options.output)) {
    throw Error(options.output + " is already there; name another file by --output, or add --force to replace it");
  }
  unfinished = temporary_path(options.output);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) std::signal(signal, remove_unfinished);
  const BundleReport report = write_bundle(options, catalog);
  if (program.quiet) return;
  for (const std::string& note : report.notes) std::fprintf(stderr, "note: %s\n", note.c_str());
  std::printf("%s: %s; unpacked, at its first start, %s\n", options.output.c_str(),
              bytes_text(static_cast<double>(report.bytes)).c_str(),
              bytes_text(static_cast<double>(report.unpacked)).c_str());
}

}  // namespace

void add_bundle(CLI::App& app, Program& program) {
  CLI::App* verb =
      app.add_subcommand("bundle", "pack a run, this program and its libraries into one file that needs only glibc");
  const auto arguments = std::make_shared<BundleArguments>();
  BundleOptions& options = arguments->options;
  options.level = kUsualLevel;
  verb->add_option("run", options.run, "a run's folder (its best checkpoint, else its newest), or a checkpoint's")
      ->required();
  verb->add_option("--output,-o", options.output, "the file to write; NAME.run by default");
  verb->add_flag("--with-data", options.with_data,
                 "also include what training reads: the data and the weights that it begins with");
  verb->add_option("--level", options.level, "how hard to compress, from 1 (fast) to 19 (small); 9 by default")
      ->check(whole_between(1, 19));
  verb->add_flag("--force", arguments->force, "replace a file that is there already");
  verb->callback([&app, &program, arguments] {
    arguments->options.verbs = bundled_verbs(app);
    bundle(*arguments, program, program.catalog);
  });
}

}  // namespace trainrun
