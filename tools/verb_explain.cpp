#include <cstdio>
#include <filesystem>
#include <memory>

#include "runner/base/byte_size.h"
#include "runner/device/device.h"
#include "runner/foresight/demand.h"
#include "runner/foresight/explain.h"
#include "runner/foresight/scaling.h"
#include "runner/recipe/duration.h"
#include "runner/recipe/recipe_defaults.h"
#include "runner/report/errors/error_pages.h"
#include "tools/accelerate_option.h"
#include "tools/notes.h"
#include "tools/number_checks.h"
#include "tools/verbs.h"

namespace trainrun {
namespace {

constexpr double kGiga = 1e9;
constexpr double kMicro = 1e-6;
constexpr double kMilli = 1e-3;

struct ExplainArguments {
  RecipeArguments recipe;
  std::string accelerate;
  bool as_json = false;
  bool codes = false;
  bool defaults = false;
  std::optional<int64_t> world_size;
  bool dry_run = false;
  ScaleOptions scale;
  bool measure = false;
  DemandLimits limits;
  std::optional<RehearsalAim> rehearse;
};

void print(const ExplainArguments& arguments, const std::string& text, const nlohmann::ordered_json& json) {
  std::fputs(arguments.as_json ? (json.dump(2) + "\n").c_str() : text.c_str(), stdout);
}

ScalePlan plan_of(const ExplainArguments& arguments, const LoadedRecipe& loaded) {
  try {
    return plan_scale(loaded, arguments.scale);
  } catch (const ScaleOptionsError& error) {
    throw CLI::ValidationError(error.what());
  }
}

void explain_scale(const ExplainArguments& arguments, const LoadedRecipe& loaded) {
  const ScalePlan plan = plan_of(arguments, loaded);
  std::optional<DryRun> found;
  if (arguments.dry_run) found = dry_run(loaded, arguments.scale.world_size, arguments.scale.rank);
  print(arguments, to_text(plan, found), to_json(plan, found));
}

/// An option that means nothing without --world-size; `unit` times what is written is stored.
template <class Number>
void add_scaled(CLI::App& verb, CLI::Option* world_size, const std::string& name, double unit, Number& target,
                const std::string& doc) {
  verb.add_option_function<double>(
          name, [&target, unit](double written) { target = written * unit; }, doc)
      ->check(above_zero())
      ->needs(world_size);
}

void add_scale_options(CLI::App& verb, ExplainArguments& arguments) {
  CLI::Option* world_size =
      verb.add_option("--world-size", arguments.world_size,
                      "print instead what each of this many ranks would hold and send, and how long a step would take")
          ->check(whole_between(int64_t{1}, int64_t{1} << 20));
  ScaleOptions& scale = arguments.scale;
  verb.add_option("--ranks-per-node", scale.ranks_per_node,
                  "ranks on each node (default: by the recipe's num_machines, else up to 8)")
      ->check(whole_from(1))
      ->needs(world_size);
  verb.add_option("--rank", scale.rank, "the rank whose memory is printed, and which --dry-run runs (default: 0)")
      ->needs(world_size);
  verb.add_flag("--dry-run", arguments.dry_run,
                "run two steps of that rank alone, on the recipe's data, and compare; writes nothing")
      ->needs(world_size);
  add_scaled(verb, world_size, "--bandwidth-intra", kGiga, scale.intra.bandwidth,
             "GB/s of a rank within a node (default: 10)");
  add_scaled(verb, world_size, "--latency-intra", kMicro, scale.intra.latency,
             "latency within a node in microseconds (default: 5)");
  add_scaled(verb, world_size, "--bandwidth-inter", kGiga, scale.inter.bandwidth,
             "GB/s between nodes, which the ranks of a node share (default: 12.5)");
  add_scaled(verb, world_size, "--latency-inter", kMicro, scale.inter.latency,
             "latency between nodes in microseconds (default: 20)");
  add_scaled(verb, world_size, "--compute-ms-per-sample", kMilli, scale.sample_seconds,
             "milliseconds of the forward and the backward pass of a sample");
  add_scaled(verb, world_size, "--flops-per-second", 1, scale.flops_per_second,
             "speed of a rank, unless --compute-ms-per-sample is given (default: 1e11)");
}

/// Of what it takes to do it, which must be tried; `demanding` is set where one is given.
void add_demand_options(CLI::App& verb, ExplainArguments& arguments) {
  verb.add_flag("--measure", arguments.measure,
                "rehearse some steps, an evaluation and a checkpoint in a separate process, and add the memory and the "
                "time that the job takes; opens the data");
  verb.add_option_function<std::string>(
      "--fits",
      [&arguments](const std::string& text) {
        arguments.limits.bytes = parse_bytes(text);
        if (!arguments.limits.bytes) {
          throw CLI::ValidationError("--fits: expected a size such as 8GB or 512MiB, found '" + text + "'");
        }
      },
      "measure whether the job fits into this much memory (8GB, 512MiB), and no times unless --measure or --within is "
      "given, too; exit code 3 if it does not fit");
  verb.add_option_function<std::string>(
      "--within",
      [&arguments](const std::string& text) {
        const auto time = Duration::parse(text);
        if (!time)
          throw CLI::ValidationError("--within: expected a time such as 30s, 15min or 2h, found '" + text + "'");
        arguments.limits.seconds = time->seconds;
      },
      "measure whether the job ends within this time (90s, 15min, 2h); exit code 3 if it does not");
  verb.add_flag_callback(
          "--rehearse", [&arguments] { arguments.rehearse = RehearsalAim::kMemoryAndTime; },
          "what --measure starts, in this process")
      ->group("");
  verb.add_flag_callback(
          "--rehearse-memory", [&arguments] { arguments.rehearse = RehearsalAim::kMemory; },
          "the same, but for the time that the job takes")
      ->group("");
}

bool is_demanding(const ExplainArguments& arguments) {
  return arguments.measure || arguments.limits.bytes || arguments.limits.seconds;
}

void explain_demand(const ExplainArguments& arguments, const LoadedRecipe& loaded, Program& program) {
  const Explanation explanation = explain(loaded);
  DemandLimits limits = arguments.limits;
  limits.wants_time = arguments.measure || limits.seconds;
  const Demand demand =
      foresee(loaded, explanation, limits, [&](const std::vector<std::string>& overrides, RehearsalAim aim) {
        std::vector<std::string> words = program.arguments;
        words.insert(words.end(), overrides.begin(), overrides.end());
        return rehearse_apart(std::move(words), aim);
      });
  nlohmann::ordered_json json = to_json(explanation);
  json["demand"] = to_json(demand);
  print(arguments, to_text(explanation) + to_text(demand, explanation, limits), json);
  const bool fits = !demand.fits || demand.fits->holds;
  const bool ends = !demand.within || demand.within->holds;
  if (!fits || !ends) program.exit_code = kDoesNotFit;
}

/// Of `trainrun explain T0101`.
void explain_code(const ExplainArguments& arguments) {
  const ErrorPage* page = find_error_page(arguments.recipe.path);
  if (!page) {
    throw RecipeError({{{},
                        "",
                        "trainrun explain: no error has the code " + arguments.recipe.path +
                            "; `trainrun explain --codes` lists all codes"}});
  }
  const nlohmann::ordered_json json = {{"code", code_text(page->code)}, {"title", page->title},
                                       {"meaning", page->meaning},      {"example", wrong_recipe(*page)},
                                       {"override", page->given},       {"mend", page->mend},
                                       {"mended", mended_recipe(*page)}};
  print(arguments, to_text(*page), json);
}

/// Prints what a code, or every code, means if that is asked for.
bool explains_codes(const ExplainArguments& arguments) {
  const std::string& word = arguments.recipe.path;
  std::error_code unreadable;
  if (arguments.codes) {
    std::fputs(error_list().c_str(), stdout);
  } else if (looks_like_code(word) && !std::filesystem::exists(word, unreadable)) {
    explain_code(arguments);
  } else {
    if (word.empty()) throw CLI::RequiredError("recipe");
    return false;
  }
  return true;
}

}  // namespace

void add_explain(CLI::App& app, Program& program) {
  CLI::App* verb = app.add_subcommand("explain",
                                      "show what a recipe means: shapes, parameters, FLOPs, memory, steps; opens no "
                                      "data. With an error's code (explain T0101), say what it means");
  const auto arguments = std::make_shared<ExplainArguments>();
  add_recipe_arguments(*verb, arguments->recipe);
  verb->get_option("recipe")->required(false)->description(
      "the recipe, a YAML file; or an error's code, such as T0101");
  verb->add_flag("--codes", arguments->codes, "list the codes of all errors instead");
  add_accelerate_option(*verb, arguments->accelerate);
  verb->add_flag("--json", arguments->as_json, "print one JSON object");
  verb->add_flag("--defaults", arguments->defaults, "print instead the resolved recipe with every default written out");
  add_scale_options(*verb, *arguments);
  add_demand_options(*verb, *arguments);
  for (const char* name : {"--measure", "--fits", "--within"}) {
    verb->get_option(name)->excludes(verb->get_option("--world-size"))->excludes(verb->get_option("--defaults"));
  }
  verb->callback([&program, arguments] {
    if (explains_codes(*arguments)) return;
    if (arguments->rehearse) {
      prepare_device(arguments->recipe.path, arguments->recipe.overrides);
      const Rehearsal found =
          rehearse(load_with_notes(arguments->recipe, arguments->accelerate, program), *arguments->rehearse);
      std::fputs((kRehearsalMark + to_json(found).dump() + "\n").c_str(), stdout);
      return;
    }
    const LoadedRecipe loaded = load_with_notes(arguments->recipe, arguments->accelerate, program);
    if (arguments->defaults) {
      std::fputs(resolved_text(with_defaults(loaded.resolved, program.catalog)).c_str(), stdout);
      return;
    }
    note_schedule(loaded, note_printer(program));
    if (arguments->world_size) {
      arguments->scale.world_size = *arguments->world_size;
      return explain_scale(*arguments, loaded);
    }
    if (is_demanding(*arguments)) return explain_demand(*arguments, loaded, program);
    const Explanation explanation = explain(loaded);
    print(*arguments, to_text(explanation), to_json(explanation));
  });
}

}  // namespace trainrun
