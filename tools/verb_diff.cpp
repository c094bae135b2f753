#include <unistd.h>

#include <cstdio>
#include <memory>

#include "runner/loggers/terminal.h"
#include "runner/report/run_diff.h"
#include "tools/verbs.h"

namespace trainrun {
namespace {

struct DiffArguments {
  std::string a;
  std::string b;
  bool as_json = false;
};

RunDiff diff_of(const DiffArguments& arguments, Catalog& catalog) {
  DiffSide a = read_side(arguments.a, catalog);
  return compare_sides(std::move(a), read_side(arguments.b, catalog), catalog);
}

}  // namespace

void add_diff(CLI::App& app, Program& program) {
  CLI::App* verb = app.add_subcommand(
      "diff", "show what differs between two recipes, runs or checkpoints, and whether it breaks a resume");
  const auto arguments = std::make_shared<DiffArguments>();
  verb->add_option("a", arguments->a, "a recipe, a run's folder or a checkpoint's")->required();
  verb->add_option("b", arguments->b, "the other one")->required();
  verb->add_flag("--json", arguments->as_json, "print one JSON object");
  verb->footer("Exit code: 0 if nothing differs, 1 if something does, 2 if they cannot be compared.");
  verb->callback([&program, arguments] {
    try {
      const RunDiff diff = diff_of(*arguments, program.catalog);
      const size_t width = isatty(STDOUT_FILENO) == 1 ? Terminal::standard().width() : 0;
      std::fputs((arguments->as_json ? to_json(diff).dump() + "\n" : to_text(diff, width)).c_str(), stdout);
      program.exit_code = diff.is_equal() ? 0 : 1;  // as diff's
    } catch (const RecipeError&) {
      throw;  // each fault has its place; the exit code is 2, too
    } catch (const Error& error) {
      throw CLI::ValidationError(error.what());
    }
  });
}

}  // namespace trainrun
