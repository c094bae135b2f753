#include <cstdio>
#include <memory>

#include "runner/foresight/explain.h"
#include "runner/foresight/scaling.h"
#include "runner/recipe/recipe_defaults.h"
#include "tools/accelerate_option.h"
#include "tools/notes.h"
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
  bool defaults = false;
  std::optional<int64_t> world_size;
  bool dry_run = false;
  ScaleOptions scale;
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
      ->check(CLI::PositiveNumber)
      ->needs(world_size);
}

void add_scale_options(CLI::App& verb, ExplainArguments& arguments) {
  CLI::Option* world_size =
      verb.add_option("--world-size", arguments.world_size,
                      "print instead what each of this many ranks would hold and send, and how long a step would take")
          ->check(CLI::Range(int64_t{1}, int64_t{1} << 20));
  ScaleOptions& scale = arguments.scale;
  verb.add_option("--ranks-per-node", scale.ranks_per_node,
                  "ranks on each node (default: by the recipe's num_machines, else up to 8)")
      ->check(CLI::PositiveNumber)
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

}  // namespace

void add_explain(CLI::App& app, Program& program) {
  CLI::App* verb = app.add_subcommand(
      "explain", "show what a recipe means: shapes, parameters, FLOPs, memory, steps; opens no data");
  const auto arguments = std::make_shared<ExplainArguments>();
  add_recipe_arguments(*verb, arguments->recipe);
  add_accelerate_option(*verb, arguments->accelerate);
  verb->add_flag("--json", arguments->as_json, "print one JSON object");
  verb->add_flag("--defaults", arguments->defaults, "print instead the resolved recipe with every default written out");
  add_scale_options(*verb, *arguments);
  verb->callback([&program, arguments] {
    const LoadedRecipe loaded = load_with_notes(arguments->recipe, arguments->accelerate, program);
    if (arguments->defaults) {
      std::fputs(resolved_text(with_defaults(loaded.resolved, program.catalog)).c_str(), stdout);
      return;
    }
    if (arguments->world_size) {
      arguments->scale.world_size = *arguments->world_size;
      return explain_scale(*arguments, loaded);
    }
    const Explanation explanation = explain(loaded);
    print(*arguments, to_text(explanation), to_json(explanation));
  });
}

}  // namespace trainrun
