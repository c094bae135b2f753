#include "runner/model/recipe_loader.h"

#include <algorithm>
#include <filesystem>
#include <set>
#include <utility>

#include "registry/formats/web/network.h"
#include "registry/kinds/build.h"
#include "registry/kinds/dataset_facts.h"
#include "registry/language/figure_name.h"
#include "registry/language/interpolation.h"
#include "registry/language/text_forms.h"
#include "registry/plugin_loader.h"
#include "runner/data/data_contract.h"
#include "runner/data/kept_tokenizers.h"
#include "runner/data/known_dataset.h"
#include "runner/model/figures.h"
#include "runner/model/hub_paths.h"
#include "runner/model/index_checks.h"
#include "runner/model/initial_weights.h"
#include "runner/model/model.h"
#include "runner/model/monitor_modes.h"
#include "runner/model/score_checks.h"
#include "runner/model/token_additions.h"
#include "runner/model/trainable.h"
#include "runner/model/trained_recipe.h"
#include "runner/model/unread_fields.h"
#include "runner/recipe/label_tasks.h"
#include "runner/recipe/recipe_source.h"
#include "runner/recipe/yaml.h"

namespace trainrun {
namespace {

/// Paths are relative to the working directory; plugins are looked for beside the recipe first. Throws PluginError.
std::string find_plugin(const std::string& plugin, const std::string& directory) {
  const std::string beside = (std::filesystem::path(directory) / plugin).lexically_normal().string();
  const std::string from_here = std::filesystem::path(plugin).lexically_normal().string();
  for (const std::string& candidate : {beside, from_here}) {
    std::error_code unreadable;  // load_plugin says why
    if (std::filesystem::exists(candidate, unreadable) || unreadable) return candidate;
  }
  throw PluginError("there is no plugin " + beside + (beside == from_here ? "" : ", nor " + from_here));
}

/// Before anything else is read, since what plugins add may be used in the recipe.
void load_plugins(ResolvedRecipe& source, Catalog& catalog, std::vector<Problem>& problems) {
  Value* plugins = source.value.find("plugins");
  if (!plugins || !plugins->is_list()) return;
  for (size_t i = 0; i < plugins->items().size(); ++i) {
    Value& plugin = plugins->items()[i];
    if (!plugin.is_scalar() || plugin.scalar_type() != ScalarType::kString) continue;
    try {
      const std::string path = find_plugin(plugin.text(), source.directory);
      load_plugin(path, catalog);
      // As the run's folder keeps it: found from any working directory.
      plugin = Value::scalar(std::filesystem::absolute(path).string(), true, plugin.place());
    } catch (const PluginError& error) {
      problems.push_back({plugin.place(), "plugins[" + std::to_string(i) + "]", error.what()});
    }
  }
}

bool has_fault(const std::vector<Problem>& problems, const std::vector<std::string>& sections) {
  return std::any_of(problems.begin(), problems.end(), [&](const Problem& problem) {
    return std::any_of(sections.begin(), sections.end(),
                       [&](const std::string& section) { return problem.path.starts_with(section); });
  });
}

/// What can be checked of the model even where other sections have faults. Null where there is no model to speak of.
std::unique_ptr<Model> check_model(const Recipe& recipe, const Value& value, std::vector<Problem>& problems) {
  const bool known = value.find("model") && value.find("dataset") && value.find("loss");
  if (!known || has_fault(problems, {"model", "dataset", "loss", "metrics", "plugins"})) return nullptr;
  std::unique_ptr<Model> model;
  try {
    model = plan_model(recipe);
    if (!value.find("optimizer") || has_fault(problems, {"optimizer"})) return model;
    check_trainable(recipe, *model);
    check_new_tokens_learn(recipe, *model);
    group_parameters(recipe.optimizer, model->parameters(), model->lr_scales(recipe));
  } catch (const RecipeError& error) {
    problems.insert(problems.end(), error.problems().begin(), error.problems().end());
  }
  return model;
}

/// What could not be resolved, merged or loaded was reported; that it is then of the wrong type, incomplete or unknown
/// is no second fault.
void drop_repeated(std::vector<Problem>& problems, size_t num_first) {
  std::set<std::string> places;
  std::vector<std::string> incomplete;  // mappings that `<<` should have completed
  bool plugin_failed = false;
  for (size_t i = 0; i < num_first; ++i) {
    const Problem& problem = problems[i];
    places.insert(problem.place.to_string());
    if (problem.path.ends_with(".<<")) incomplete.push_back(problem.path.substr(0, problem.path.size() - 3));
    plugin_failed = plugin_failed || problem.path.starts_with("plugins[");
  }
  const auto repeated = [&](const Problem& problem) {
    const auto contains = [&](const std::string& path) { return problem.path.starts_with(path); };
    return places.contains(problem.place.to_string()) || std::any_of(incomplete.begin(), incomplete.end(), contains) ||
           (plugin_failed && problem.unknown_component);
  };
  problems.erase(std::remove_if(problems.begin() + static_cast<std::ptrdiff_t>(num_first), problems.end(), repeated),
                 problems.end());
}

/// console and jsonl, unless the recipe names loggers.
void set_default_loggers(Recipe& recipe, Reader& reader) {
  if (recipe.logging.report_to) return;
  std::vector<Value> names;
  for (const char* name : {"console", "jsonl"}) names.push_back(Value::scalar(name, false, {}));
  recipe.logging.report_to = Codec<std::vector<Component<LoggerKind>>>::read(Value::list(names, {}), reader);
}

/// What is near, or else what there is. That all begin with "eval/" makes no two of them alike, nor does it matter what
/// other systems begin theirs with, "val_".
std::string monitor_hint(const std::string& monitor, const std::vector<std::string>& names) {
  constexpr size_t kMostListed = 24;
  std::string wanted = monitor;
  for (const char* prefix : {"eval", "valid", "validation", "val", "test"}) {
    for (const char* separator : {"/", "_", "."}) {
      const std::string begin = std::string(prefix) + separator;
      if (wanted.starts_with(begin)) wanted.erase(0, begin.size());
    }
  }
  std::vector<std::string> ends;
  for (const std::string& name : names) ends.push_back(name.substr(name.find('/') + 1));
  if (const std::string near = nearest(wanted, ends); !near.empty() && !monitor.starts_with("train")) {
    const auto place = static_cast<size_t>(std::find(ends.begin(), ends.end(), near) - ends.begin());
    return "; did you mean " + names[place] + "?";
  }
  return "; known: " + join_first(names, kMostListed);
}

/// Whether the model can only be checked once something is fetched, which this process may not do.
bool waits_for_network(const std::vector<PublishedName>& names) {
  return !network_is_allowed() && std::ranges::any_of(names, [](const PublishedName& name) {
    return name.tells_shapes && !name.source.has_config;
  });
}

/// What is monitored must be among what evaluation gives, and there must be evaluations. What it gives is known where
/// there is a model.
void check_monitors(const Recipe& recipe, const Model* model, const std::vector<EvaluationFigure>& figures,
                    const Value& value, std::vector<Problem>& problems) {
  std::vector<std::string> names;
  for (const EvaluationFigure& figure : figures) names.push_back(figure.name);
  const Value* dataset = value.find("dataset");
  const auto given = [&](const char* key) { return dataset && dataset->find(key) && !dataset->find(key)->is_null(); };
  const bool has_data = given("eval") || given("fold");
  const auto check = [&](const std::string& monitor, const Place& place, const std::string& path) {
    if (!has_data) {
      problems.push_back({place, path, "there are no evaluations to watch: add dataset.eval"});
    } else if (!recipe.evaluation.every) {
      problems.push_back({place, path, "there are no evaluations to watch: evaluation.every is null"});
    } else if (model && std::ranges::find(names, monitor) == names.end() &&
               std::ranges::find(names, present_figure_name(monitor)) == names.end()) {
      problems.push_back({place, path, "evaluations have no '" + monitor + "'" + monitor_hint(monitor, names)});
    }
  };
  if (recipe.checkpoint.keep_best) {
    const Value* keep_best = value.find("checkpoint")->find("keep_best");
    check(recipe.checkpoint.keep_best->monitor, keep_best->find("monitor")->place(), "checkpoint.keep_best.monitor");
  }
  for (const Component<CallbackKind>& callback : recipe.callbacks) {
    const std::string monitor = build_at_place(callback, {})->monitor();
    const Value* written = callback.written.find("monitor");
    if (monitor.empty()) continue;
    check(monitor, written ? written->place() : callback.place, callback.path + (written ? ".monitor" : ""));
  }
  if (!recipe.scheduler) return;
  const std::string monitor = build_at_place(*recipe.scheduler, {{}, 1})->monitor();
  const Value* written = recipe.scheduler->written.find("monitor");
  if (!monitor.empty()) {
    check(monitor, written ? written->place() : recipe.scheduler->place, written ? "scheduler.monitor" : "scheduler");
  }
}

/// EMA and the like: of two, the last one would decide in silence.
void check_averages(const Recipe& recipe, std::vector<Problem>& problems) {
  bool has_one = false;
  for (const Component<CallbackKind>& callback : recipe.callbacks) {
    if (!callback.attributes.value("use_for_evaluation", false) || !std::exchange(has_one, true)) continue;
    problems.push_back({callback.place, callback.path,
                        "another callback has evaluations use its average of the weights; one of them may: write "
                        "use_for_evaluation: false for the other"});
  }
}

LoadedRecipe load(const std::string& path, const std::vector<std::string>& overrides, Catalog& catalog,
                  InitialWeights weights, const nlohmann::json& learnt) {
  ResolvedRecipe source = resolve_recipe(path, overrides);
  std::vector<Problem> problems = source.problems;
  LoadedRecipe loaded;
  loaded.path = path;
  std::vector<Problem> notes;
  std::unique_ptr<Model> planned;
  if (source.value.is_map()) {
    use_kept_tokenizers(source.value, learnt.is_object() ? learnt.value("tokenizers", nlohmann::json()) : nullptr,
                        std::filesystem::path(path).parent_path().string(), loaded.kept_notes);
    if (!source.value.find("name")) {
      const std::string stem = std::filesystem::path(path).stem().string();
      source.value.set("name", {}, Value::scalar(stem, true, source.value.place()));
    }
    load_plugins(source, catalog, problems);
    const size_t num_source_problems = problems.size();
    Reader reader(catalog, problems);
    const Value* model = source.value.find("model");
    reader.blocks = model ? model->find("blocks") : nullptr;  // they are layer types from here on
    TokenGrowth growth;
    loaded.recipe = Codec<Recipe>::fields().read(
        with_added_tokens(with_hub_paths(with_label_tasks(source.value, catalog), catalog, !learnt.is_null(), problems),
                          catalog, growth, problems),
        reader, "");
    loaded.recipe.dataset.token_growth = std::move(growth);
    loaded.recipe.fusions = std::make_shared<const FusionRegistry>(catalog.fusions);
    set_default_loggers(loaded.recipe, reader);
    loaded.recipe.dataset.apply_fold(static_cast<uint64_t>(loaded.recipe.seed));
    loaded.recipe.cut_batches();
    if (!learnt.is_null() && !has_fault(problems, {"dataset", "plugins"})) {
      const nlohmann::json inferred = inferred_in(learnt);  // later builds of it then know that, too
      if (!inferred.is_null()) build_at_place(loaded.recipe.dataset.train, {})->set_inferred(inferred);
      if (const auto fields = fields_in(learnt)) use_known_fields(loaded.recipe.dataset, *fields);
    }
    loaded.names = published_names(source.value, catalog);
    if (!waits_for_network(loaded.names)) planned = check_model(loaded.recipe, source.value, problems);
    for (const Problem& missing : weights == InitialWeights::kUnneeded
                                      ? std::vector<Problem>()
                                      : missing_weights(loaded.recipe, source.value, planned.get())) {
      // Other models may be copies of the initial weights, or have weights of their own, which checkpoints need not hold.
      const bool may_be_saved = weights == InitialWeights::kUnlessResumed && loaded.recipe.models.entries.empty() &&
                                missing.path.starts_with("model.weights");
      (may_be_saved ? loaded.missing : problems).push_back(missing);
    }
    if (!has_fault(problems, {"callbacks"})) check_averages(loaded.recipe, problems);
    if (!has_fault(problems, {"metrics", "checkpoint", "scheduler", "callbacks"})) {
      try {
        const std::vector<EvaluationFigure> figures =
            planned ? evaluation_figures(loaded.recipe, planned->build_metrics(loaded.recipe))
                    : std::vector<EvaluationFigure>();
        check_monitors(loaded.recipe, planned.get(), figures, source.value, problems);
        notes = settle_modes(loaded.recipe, figures, source.value, reader);
      } catch (const RecipeError& error) {  // a component that cannot be built
        problems.insert(problems.end(), error.problems().begin(), error.problems().end());
      }
    }
    drop_repeated(problems, num_source_problems);
  } else if (problems.empty()) {
    problems.push_back({source.value.place(), "", "a recipe is a mapping: model, loss, dataset, optimizer, training"});
  }
  sort_problems(problems);
  if (!problems.empty()) throw RecipeError(problems);
  loaded.surplus = std::move(notes);
  loaded.is_planned = planned != nullptr;
  if (planned) {
    const DatasetInfo info = training_info(loaded.recipe);
    const std::vector<Problem> surplus = surplus_outputs(loaded.recipe, planned->graph(), info);
    loaded.surplus.insert(loaded.surplus.end(), surplus.begin(), surplus.end());
    const std::vector<Problem> raw = raw_outputs(loaded.recipe, planned->graph());
    loaded.surplus.insert(loaded.surplus.end(), raw.begin(), raw.end());
    const std::vector<Problem> idle = idle_groups(loaded.recipe, *planned);
    loaded.surplus.insert(loaded.surplus.end(), idle.begin(), idle.end());
    const auto unread = unread_fields(loaded.recipe, planned->graph(), info);
    loaded.surplus.insert(loaded.surplus.end(), unread.begin(), unread.end());
  }
  loaded.resolved = std::move(source.value);
  loaded.kept = std::move(source.kept);
  if (network_is_allowed()) loaded.names = published_names(loaded.resolved, catalog);  // some of them are there now
  return loaded;
}

}  // namespace

LoadedRecipe load_recipe(const std::string& path, const std::vector<std::string>& overrides, Catalog& catalog,
                         InitialWeights weights) {
  return load(path, overrides, catalog, weights, nullptr);
}

LoadedRecipe load_trained_recipe(const std::string& path, const std::vector<std::string>& overrides, Catalog& catalog,
                                 const nlohmann::json& learnt) {
  return load(path, overrides, catalog, InitialWeights::kUnneeded, learnt);
}

std::string resolved_text(const Value& resolved) { return to_yaml(escape_interpolation(resolved)); }

}  // namespace trainrun
