#include <cstdio>
#include <memory>

#include "registry/formats/files/file_io.h"
#include "runner/device/device.h"
#include "runner/report/data_survey.h"
#include "tools/notes.h"
#include "tools/number_checks.h"
#include "tools/verbs.h"

namespace trainrun {
namespace {

struct DataArguments {
  RecipeArguments recipe;
  DataSurveyOptions options;
  std::string output;
  bool in_terminal = false;
};

}  // namespace

void add_data(CLI::App& app, Program& program) {
  CLI::App* verb = app.add_subcommand(
      "data", "show the samples as the model will see them, class counts, means, and suspicious findings");
  const auto arguments = std::make_shared<DataArguments>();
  add_recipe_arguments(*verb, arguments->recipe);
  verb->add_option("--output,-o", arguments->output, "the HTML page to write (default: NAME.html)");
  verb->add_flag("--terminal", arguments->in_terminal, "show samples in the terminal, and write no page");
  verb->add_option("--show", arguments->options.shown, "samples of each set (default: 24)")
      ->check(whole_between(0, 10000));
  verb->add_option("--measure", arguments->options.measured, "samples of each set for means (default: 2000)")
      ->check(whole_between(1, 1000000000));
  verb->add_option("--compare", arguments->options.compared,
                   "samples of each set that are compared with each other (default: 50000)")
      ->check(whole_between(0, 1000000000));
  verb->callback([&program, arguments] {
    prepare_device(arguments->recipe.path, arguments->recipe.overrides);
    const LoadedRecipe loaded = load_with_notes(arguments->recipe, "", program);
    const DataSurvey survey = survey_data(loaded, arguments->options);
    std::fputs(to_text(survey, arguments->in_terminal).c_str(), stdout);
    if (arguments->in_terminal && arguments->output.empty()) return;
    const std::string path = arguments->output.empty() ? survey.name + ".html" : arguments->output;
    write_file_atomically(path, to_html(survey));
    std::fprintf(stdout, "\nthe samples: %s\n", path.c_str());
  });
}

}  // namespace trainrun
