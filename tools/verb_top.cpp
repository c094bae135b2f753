#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <thread>

#include "runner/loggers/terminal.h"
#include "runner/report/live_table.h"
#include "tools/verbs.h"

namespace trainrun {
namespace {

constexpr const char* kClear = "\033[H\033[2J";  // from the first line on
constexpr int kLooksBetweenSearches = 10;

/// The table once a second, until the program is ended.
[[noreturn]] void follow(const std::string& folder, const Catalog& catalog) {
  FoundRuns found;
  for (int look = 0;; ++look) {
    if (look % kLooksBetweenSearches == 0) found = find_runs(folder, catalog);
    const std::string text = live_table(folder, found, Terminal::standard().width());
    std::printf("%s%s", kClear, text.c_str());
    std::fflush(stdout);
    std::this_thread::sleep_for(std::chrono::seconds(1));
  }
}

}  // namespace

void add_top(CLI::App& app, Program& program) {
  CLI::App* verb = app.add_subcommand(
      "top", "show the runs in a folder, refreshed every second: step, rate, loss, time left, memory; Ctrl-C ends it");
  const auto folder = std::make_shared<std::string>("runs");
  const auto once = std::make_shared<bool>(false);
  verb->add_option("folder", *folder, "the folder to search for runs, with its subfolders (default: runs)");
  verb->add_flag("--once", *once, "print the table once, as happens when standard output is not a terminal");
  verb->callback([&program, folder, once] {
    if (!std::filesystem::is_directory(*folder)) {
      throw CLI::ValidationError(*folder + " is not a folder; name the one in which runs lie: trainrun top FOLDER");
    }
    if (isatty(STDOUT_FILENO) == 1 && !*once) follow(*folder, program.catalog);
    std::fputs(live_table(*folder, find_runs(*folder, program.catalog), 0).c_str(), stdout);
  });
}

}  // namespace trainrun
