#include <algorithm>
#include <cstdio>
#include <memory>

#include "runner/base/secrets.h"
#include "runner/model/recipe_loader.h"
#include "runner/report/errors/error_code.h"
#include "tools/accelerate_option.h"
#include "tools/notes.h"
#include "tools/verbs.h"

namespace trainrun {
namespace {

/// How far a recipe could be checked.
const char* verdict(const LoadedRecipe& loaded) {
  if (loaded.is_planned) return "valid";
  const bool waits_for_data = std::ranges::any_of(
      loaded.names, [](const PublishedName& name) { return name.is_data && !name.source.has_config; });
  return waits_for_data ? "valid as far as can be told before the data are fetched"
                        : "valid as far as can be told before the model is fetched";
}

/// A note has no code, since it is no fault.
nlohmann::ordered_json to_json(const Problem& problem, bool is_fault) {
  nlohmann::ordered_json json;
  if (is_fault) {
    const std::string code = code_text(code_of(problem));
    json["code"] = code.empty() ? nlohmann::ordered_json() : nlohmann::ordered_json(code);
  }
  json["file"] = problem.place.file ? nlohmann::ordered_json(*problem.place.file) : nlohmann::ordered_json();
  json["line"] = problem.place.line;
  json["column"] = problem.place.column;
  json["path"] = problem.path;
  json["message"] = without_secrets(problem.message);
  return json;
}

void print_json(const std::string& path, const char* verdict, const std::vector<Problem>& problems,
                const std::vector<Problem>& notes) {
  nlohmann::ordered_json json = {{"recipe", path}, {"valid", problems.empty()}, {"verdict", verdict}};
  json["problems"] = json["notes"] = nlohmann::ordered_json::array();
  for (const Problem& problem : problems) json["problems"].push_back(to_json(problem, true));
  for (const Problem& note : notes) json["notes"].push_back(to_json(note, false));
  std::fputs((json.dump(2) + "\n").c_str(), stdout);
}

void validate(const RecipeArguments& arguments, const std::string& accelerate, bool as_json, Program& program) {
  std::vector<Problem> notes;
  const NoteTaker note = as_json ? [&](const Problem& one) { notes.push_back(one); } : note_printer(program);
  try {
    const LoadedRecipe loaded = load_with_notes(arguments, accelerate, program, note);
    note_schedule(loaded, note);
    if (as_json) return print_json(arguments.path, verdict(loaded), {}, notes);
    if (!program.quiet) std::printf("%s: %s\n", arguments.path.c_str(), verdict(loaded));
  } catch (const RecipeError& error) {
    if (!as_json) throw;
    print_json(arguments.path, "not valid", error.problems(), notes);
    program.exit_code = kWrongInput;
  } catch (const DataError& error) {  // drop_last that leaves no batch
    if (!as_json) throw;
    print_json(arguments.path, "not valid", {{{}, "dataset.train", error.what()}}, notes);
    program.exit_code = kWrongInput;
  }
}

}  // namespace

void add_validate(CLI::App& app, Program& program) {
  CLI::App* verb = app.add_subcommand("validate", "check a recipe and report every error; opens no data");
  const auto arguments = std::make_shared<RecipeArguments>();
  const auto accelerate = std::make_shared<std::string>();
  add_recipe_arguments(*verb, *arguments);
  add_accelerate_option(*verb, *accelerate);
  const auto as_json = std::make_shared<bool>();
  verb->add_flag("--json", *as_json, "print one JSON object, with each error's place and code, and each note's place");
  verb->callback([&program, arguments, accelerate, as_json] { validate(*arguments, *accelerate, *as_json, program); });
}

}  // namespace trainrun
