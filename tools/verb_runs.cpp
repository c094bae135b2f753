#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <memory>

#include "runner/loggers/terminal.h"
#include "runner/report/run_table.h"
#include "tools/verbs.h"

namespace trainrun {
namespace {

constexpr size_t kWidthOfFile = 120;  // of what is no terminal

struct RunsArguments {
  std::string folder = "runs";
  std::string sort;
  std::vector<std::string> filters;
  std::vector<std::string> columns;
  bool descending = false;
  bool as_json = false;
};

RunTableOptions options_of(const RunsArguments& arguments) {
  RunTableOptions options;
  options.sort = arguments.sort;
  options.descending = arguments.descending;
  options.columns = arguments.columns;
  for (const std::string& text : arguments.filters) {
    for (RunFilter& filter : parse_filters(text)) options.filters.push_back(std::move(filter));
  }
  return options;
}

}  // namespace

void add_runs(CLI::App& app, Program& program) {
  CLI::App* verb = app.add_subcommand(
      "runs", "list the runs in a folder: state, step, best figure, time, and the keys of the recipe that differ");
  const auto arguments = std::make_shared<RunsArguments>();
  verb->add_option("folder", arguments->folder, "the folder to search for runs, with its subfolders (default: runs)");
  verb->add_option("--sort", arguments->sort,
                   "by a key of the recipe (optimizer.lr), a figure of the last evaluation (eval/loss), or name, path, "
                   "state, step, epoch, loss, best, seconds, when");
  verb->add_flag("--descending,-r", arguments->descending, "with --sort: the largest first");
  verb->add_option("--filter", arguments->filters,
                   "only runs for which this holds: 'optimizer.lr>1e-3', 'state=finished and eval/loss<0.5'")
      ->allow_extra_args(false);
  CLI::Option* columns = verb->add_option("--columns", arguments->columns,
                                          "show these columns alone beside the runs' paths, however wide: keys and "
                                          "figures that --sort takes, with commas between them")
                             ->delimiter(',')
                             ->allow_extra_args(false);
  verb->add_flag("--json", arguments->as_json, "print one JSON object")->excludes(columns);
  verb->callback([&program, arguments] {
    try {
      const RunTableOptions options = options_of(*arguments);
      if (!std::filesystem::is_directory(arguments->folder)) {
        const bool exists = std::filesystem::exists(arguments->folder);
        throw Error((exists ? "'" + arguments->folder + "' is not a folder"
                            : "there is no folder '" + arguments->folder + "'") +
                    "; name the folder that holds the runs: trainrun runs FOLDER");
      }
      const RunTable table = make_run_table(arguments->folder, options, program.catalog);
      const bool is_terminal = isatty(STDOUT_FILENO) == 1;
      const size_t width = is_terminal ? Terminal::standard().width() : kWidthOfFile;
      const std::string text = arguments->as_json ? to_json(table).dump() + "\n" : to_text(table, width, is_terminal);
      std::fputs(text.c_str(), stdout);
    } catch (const Error& error) {
      throw CLI::ValidationError(error.what());
    }
  });
}

}  // namespace trainrun
