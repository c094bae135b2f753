#include <cstdio>
#include <memory>

#include "runner/replay/bisect.h"
#include "tools/verbs.h"

namespace trainrun {
namespace {

struct BisectArguments {
  std::string a;
  std::string b;
  std::vector<std::string> overrides;
  bool as_json = false;
};

RunBisection bisection_of(const BisectArguments& arguments, Program& program) {
  try {
    ReplayedRun a(arguments.a, arguments.overrides, program.catalog);
    ReplayedRun b(arguments.b, arguments.overrides, program.catalog);
    return bisect(a, b);
  } catch (const RecipeError&) {
    throw;  // each fault has its place; the exit code is 2, too
  } catch (const Error& error) {
    throw CLI::ValidationError(error.what());
  }
}

}  // namespace

void add_bisect(CLI::App& app, Program& program) {
  CLI::App* verb = app.add_subcommand(
      "bisect", "find the first step, layer and tensor in which two runs part; repeats their steps, writes nothing");
  const auto arguments = std::make_shared<BisectArguments>();
  verb->add_option("a", arguments->a, "a run's folder")->required();
  verb->add_option("b", arguments->b, "the other one")->required();
  verb->add_option("overrides", arguments->overrides,
                   "key=value for both, for keys that change no numbers: num_threads=2");
  verb->add_flag("--json", arguments->as_json, "print one JSON object");
  verb->footer("Exit code: 0 if the runs do not part, 1 if they do, 2 if they cannot be compared.");
  verb->callback([&program, arguments] {
    const RunBisection found = bisection_of(*arguments, program);
    std::fputs(arguments->as_json ? (to_json(found).dump() + "\n").c_str() : to_text(found).c_str(), stdout);
    program.exit_code = found.is_equal() ? 0 : 1;  // as diff's
  });
}

}  // namespace trainrun
