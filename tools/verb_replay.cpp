#include <cstdio>
#include <memory>

#include "runner/replay/first_not_finite.h"
#include "runner/replay/replay.h"
#include "tools/number_checks.h"
#include "tools/verbs.h"

namespace trainrun {
namespace {

struct ReplayArguments {
  std::string run;
  std::vector<std::string> overrides;
  int64_t step = 0;
  bool not_finite = false;
  bool as_json = false;
};

}  // namespace

void add_replay(CLI::App& app, Program& program) {
  CLI::App* verb = app.add_subcommand(
      "replay", "repeat one step of a run, and show what every layer and parameter did in it; writes nothing");
  const auto arguments = std::make_shared<ReplayArguments>();
  verb->add_option("run", arguments->run, "a run's folder")->required();
  verb->add_option("overrides", arguments->overrides,
                   "key=value, for keys that change no numbers: dataset.train.root=other");
  CLI::Option* step = verb->add_option("--step", arguments->step, "the step to repeat, counted from 1 as in the log")
                          ->check(whole_from(1));
  verb->add_flag("--not-finite", arguments->not_finite,
                 "find the first step after the newest checkpoint in which a number is not finite")
      ->excludes(step);
  verb->add_flag("--json", arguments->as_json, "print one JSON object, with all samples of the step");
  verb->callback([&program, arguments] {
    ReplayedRun run(arguments->run, arguments->overrides, program.catalog);
    if (arguments->step == 0 && !arguments->not_finite) throw CLI::ValidationError("write --step N, or --not-finite");
    const int64_t step = arguments->not_finite ? find_not_finite(run, INT64_MAX) : arguments->step;
    const StepReplay replay = replay_step(run, step);
    std::fputs(arguments->as_json ? (to_json(replay).dump() + "\n").c_str() : to_text(replay).c_str(), stdout);
  });
}

}  // namespace trainrun
