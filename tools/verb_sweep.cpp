#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <memory>

#include "registry/formats/files/file_io.h"
#include "registry/language/error.h"
#include "registry/language/text_forms.h"
#include "runner/base/signals.h"
#include "runner/device/device.h"
#include "runner/device/threads.h"
#include "runner/model/figures.h"
#include "runner/model/model.h"
#include "runner/run/watched_figure.h"
#include "runner/sweep/sweep.h"
#include "runner/sweep/sweep_page.h"
#include "runner/sweep/sweep_table.h"
#include "tools/number_checks.h"
#include "tools/verbs.h"

namespace trainrun {
namespace {

constexpr int64_t kMostGrid = 1'000'000;

struct SweepArguments {
  RecipeArguments recipe;  // or the folder of a sweep
  std::string output;
  std::string metric;
  bool minimizes = false, maximizes = false;
  std::string method;
  std::optional<int64_t> trials;
  uint64_t seed = 0;
  std::string scheduler = "none";
  std::optional<int64_t> min_steps;
  int64_t reduction = 3;
  std::optional<int64_t> jobs;
  bool shares_nothing = false, retries_failed = false;
  bool as_table = false, as_json = false;
};

void print_table(const SweepTable& table, bool as_json) {
  std::fputs(as_json ? (to_json(table).dump() + "\n").c_str() : to_text(table).c_str(), stdout);
}

/// Which way the metric is better: as the command line says, else as the metric does.
MonitorMode direction_of(const SweepArguments& arguments, const std::optional<MonitorMode>& better) {
  if (arguments.minimizes || arguments.maximizes) return arguments.maximizes ? MonitorMode::kMax : MonitorMode::kMin;
  if (better) return *better;
  throw Error(
      "whether a smaller or a larger figure is better is not known of the metric; add --minimize or --maximize");
}

/// The metric by which trials are compared, which evaluations must give.
void choose_metric(const SweepArguments& arguments, const LoadedRecipe& loaded, const Catalog& catalog,
                   SweepFacts& facts) {
  const WatchedFigure watched = watched_figure(loaded.resolved, catalog);
  facts.metric = arguments.metric.empty() ? watched.name : arguments.metric;
  std::optional<MonitorMode> better = facts.metric == watched.name ? watched.better : std::nullopt;
  if (loaded.recipe.dataset.eval && loaded.recipe.evaluation.every && loaded.is_planned) {
    std::vector<std::string> names;
    for (const EvaluationFigure& figure :
         evaluation_figures(loaded.recipe, plan_model(loaded.recipe)->build_metrics(loaded.recipe))) {
      names.push_back(figure.name);
      if (figure.name == facts.metric && figure.better) better = figure.better;
    }
    if (std::ranges::find(names, facts.metric) == names.end()) {
      throw Error("--metric: evaluations have no '" + facts.metric + "'" + suggestion(facts.metric, names));
    }
  } else if (!loaded.recipe.dataset.eval || !loaded.recipe.evaluation.every) {
    throw Error("there are no evaluations to compare trials by: add dataset.eval, and evaluation.every=epoch");
  }
  facts.better = direction_of(arguments, better);
}

/// How points are chosen, and how many.
void choose_method(const SweepArguments& arguments, const SearchSpace& space, SweepFacts& facts) {
  const auto grid = space.grid_size();
  facts.method = !arguments.method.empty() ? arguments.method : grid && !arguments.trials ? "grid" : "tpe";
  if (facts.method == "grid" && !grid) {
    throw Error("--method grid needs values that can be counted; " + space.dimensions[0].key +
                " and its like have any number between two: write [a, b, c], or --method random");
  }
  if (facts.method == "grid" && *grid > kMostGrid && !arguments.trials) {
    throw Error("the grid has " + std::to_string(*grid) + " points; write --trials N, which chooses among them");
  }
  if (facts.method != "grid" && !arguments.trials) {
    throw Error("how many trials are to be made? Write --trials 30");
  }
  facts.num_trials = facts.method == "grid" ? std::min(*grid, arguments.trials.value_or(*grid)) : *arguments.trials;
}

std::optional<Halving::Options> halving_of(const SweepArguments& arguments, const Recipe& recipe) {
  if (arguments.scheduler == "none") {
    if (arguments.min_steps) throw Error("--min-steps is of --scheduler asha, which is not given");
    return std::nullopt;
  }
  if (!arguments.min_steps) {
    throw Error("--scheduler " + arguments.scheduler +
                " needs --min-steps N: the step at which trials are compared first");
  }
  if (!recipe.checkpoint.every) {
    throw Error("--scheduler " + arguments.scheduler +
                " stops trials and goes on with the best, but checkpoint.every is null; write checkpoint.every=epoch");
  }
  const auto* every = std::get_if<int64_t>(&*recipe.evaluation.every);
  if (every && *every > *arguments.min_steps) {
    throw Error("up to step " + std::to_string(*arguments.min_steps) +
                ", where trials are compared first, there is no "
                "evaluation: evaluation.every is " +
                std::to_string(*every) + "; write evaluation.every=" + std::to_string(*arguments.min_steps) +
                ", or a larger --min-steps");
  }
  return Halving::Options{*arguments.min_steps, arguments.reduction, arguments.scheduler == "asha-stop"};
}

/// How many trials run at once: on a GPU one, on the CPU one for each core, or for the processes of one trial.
int64_t jobs_of(const SweepArguments& arguments, const Recipe& recipe, int64_t num_trials) {
  if (arguments.jobs) return *arguments.jobs;
  if (!choose_device({recipe.device, recipe.distributed_type, 0, 1}).is_cpu()) return 1;
  return std::clamp<int64_t>(usable_cpus() / std::max<int64_t>(1, recipe.num_processes), 1, num_trials);
}

SweepOptions options_of(const SweepArguments& arguments, Program& program) {
  SweepOptions options;
  options.program = program.arguments[0];
  options.recipe = arguments.recipe.path;
  options.space = parse_search_space(arguments.recipe.overrides);
  if (options.space.dimensions.empty()) {
    throw Error(
        "a sweep needs a key with several values, such as optimizer.lr=log(1e-5,1e-2), seed=1..3, "
        "model.layers[0].out_features=[64,128]");
  }
  prepare_device(options.recipe, options.space.overrides(options.space.points_to_check(0)[0]));
  const LoadedRecipe loaded = check_recipe(options.recipe, options.space, program.catalog);
  SweepFacts& facts = options.facts;
  facts.recipe = options.recipe;
  facts.arguments = arguments.recipe.overrides;
  for (const Dimension& dimension : options.space.dimensions) facts.keys.push_back(dimension.key);
  facts.seed = arguments.seed;
  choose_metric(arguments, loaded, program.catalog, facts);
  choose_method(arguments, options.space, facts);
  facts.halving = halving_of(arguments, loaded.recipe);
  options.folder = arguments.output.empty() ? "runs/" + loaded.recipe.name + "-sweep" : arguments.output;
  options.shares_steps = !arguments.shares_nothing;
  options.retries_failed = arguments.retries_failed;
  options.jobs = jobs_of(arguments, loaded.recipe, facts.num_trials);
  options.tell = [quiet = program.quiet || arguments.as_json](const std::string& line) {
    if (quiet) return;
    std::printf("%s\n", line.c_str());
    std::fflush(stdout);
  };
  return options;
}

void run_sweep(const SweepArguments& arguments, Program& program) {
  SweepOptions options = options_of(arguments, program);
  options.tell(counted(options.facts.num_trials, "trial", "trials") + " by " + options.facts.method + ", " +
               std::to_string(options.jobs) + " at once, in " + options.folder + "; " + options.facts.metric +
               ", the " + (options.facts.better == MonitorMode::kMax ? "larger" : "smaller") + " the better");
  for (const Dimension& dimension : options.space.dimensions)
    options.tell("  " + dimension.key + "=" + dimension.words());
  const std::string folder = options.folder;
  const auto tell = options.tell;
  Sweep sweep(std::move(options), program.catalog);
  const int signal = sweep.run();
  const SweepTable table = make_sweep_table(folder, sweep.state());
  write_file_atomically(folder + "/sweep.html", sweep_page(table));
  if (!program.quiet || arguments.as_json) print_table(table, arguments.as_json);
  tell("page: " + folder + "/sweep.html");
  if (signal != 0) {
    tell(std::string("stopped by ") + signal_name(signal) + "; the same command resumes");
    program.exit_code = 128 + signal;
  } else if (!table.best) {
    program.exit_code = kJobFailed;
  }
}

}  // namespace

void add_sweep(CLI::App& app, Program& program) {
  CLI::App* verb = app.add_subcommand(
      "sweep", "train a recipe with many values of some keys: grid, random, TPE, successive halving; one run each");
  const auto arguments = std::make_shared<SweepArguments>();
  verb->add_option("recipe", arguments->recipe.path, "the recipe, or the folder of a sweep, whose table is then shown")
      ->required();
  verb->add_option("overrides", arguments->recipe.overrides,
                   "several values: key=log(1e-5,1e-3), key=uniform(0,0.5), key=int(2,8), key=logint(8,512), key=1..3, "
                   "key=[a,b,c]; one: key=value");
  verb->add_option("--trials", arguments->trials, "number of trials (default: every point of a grid)")
      ->check(whole_from(1));
  verb->add_option("--metric", arguments->metric,
                   "the figure by which trials are compared (default: the one that the recipe watches)");
  auto* smaller = verb->add_flag("--minimize", arguments->minimizes, "the smaller the metric, the better");
  verb->add_flag("--maximize", arguments->maximizes, "the larger the metric, the better")->excludes(smaller);
  verb->add_option(
          "--method", arguments->method,
          "grid: all points, the default where they can be counted and --trials is not given; random; tpe, the "
          "default otherwise")
      ->check(CLI::IsMember({"grid", "random", "tpe"}));
  verb->add_option("--seed", arguments->seed, "seed for drawing the points; not the recipe's own seed");
  verb->add_option(
          "--scheduler", arguments->scheduler,
          "asha: compare trials at --min-steps, then whenever the number of steps has grown by the factor --reduction, "
          "and continue the best; asha-stop: stop a trial for good as soon as it is not among the best")
      ->check(CLI::IsMember({"none", "asha", "asha-stop"}));
  verb->add_option("--min-steps", arguments->min_steps, "asha: the first step at which trials are compared")
      ->check(whole_from(1));
  verb->add_option("--reduction", arguments->reduction, "asha: one trial in this many continues (default: 3)")
      ->check(whole_between(int64_t{2}, int64_t{1000}));
  verb->add_option("--jobs,-j", arguments->jobs, "trials at once (default: one for each core; on a GPU, one)")
      ->check(whole_from(1));
  verb->add_option("--output,-o", arguments->output, "the folder of the sweep; runs/NAME-sweep by default");
  verb->add_flag("--no-sharing", arguments->shares_nothing,
                 "train each trial from its beginning, even if several are equal up to some step");
  verb->add_flag("--retry-failed", arguments->retries_failed, "train failed trials again");
  verb->add_flag("--table", arguments->as_table, "show the table of the sweep in a folder; trains nothing");
  verb->add_flag("--json", arguments->as_json, "print the table as one JSON object");
  verb->callback([&program, arguments] {
    const std::string& path = arguments->recipe.path;
    const bool is_folder = std::filesystem::is_directory(path);
    if (!is_folder && !arguments->as_table) return run_sweep(*arguments, program);
    if (!is_folder) throw Error("--table: " + path + " is not a folder; name that of the sweep");
    if (!arguments->recipe.overrides.empty()) throw Error(path + " is a folder; a sweep trains a recipe");
    const SweepTable table = read_sweep_table(path);
    write_file_atomically(path + "/sweep.html", sweep_page(table));
    print_table(table, arguments->as_json);
  });
}

}  // namespace trainrun
