#include <cctype>
#include <cstdio>
#include <filesystem>
#include <memory>

#include "registry/kinds/dataset.h"
#include "registry/kinds/dataset_facts.h"
#include "registry/language/error.h"
#include "runner/base/ascii_name.h"
#include "runner/init/editor.h"
#include "runner/init/file_encoding.h"
#include "runner/init/init.h"
#include "runner/model/recipe_loader.h"
#include "runner/report/data_survey.h"
#include "tools/verbs.h"

namespace trainrun {
namespace {

struct InitArguments {
  InitOptions options;
  std::string data, target, task, weights, encoding, name, output;
  bool force = false;
  bool editor = false;
};

/// "house prices" of "data/house prices.csv.gz", in characters that a folder's name may have everywhere.
std::string name_of(const std::string& data) {
  const std::filesystem::path path(data);
  std::string name = (path.has_filename() ? path : path.parent_path()).filename().string();
  if (name.empty() || name == "." || name == "..")
    name = std::filesystem::absolute(data).lexically_normal().parent_path().filename().string();
  if (!std::filesystem::is_directory(data)) name = name.substr(0, name.find('.', 1));
  std::string safe = ascii_name(name, "-_", '_');
  if (safe.empty() || !std::isalpha(static_cast<unsigned char>(safe[0]))) safe = "data_" + safe;
  return safe;
}

std::optional<std::string> given(const std::string& word) { return word.empty() ? std::nullopt : std::optional(word); }

/// Bytes of the files below `path`, as far as `most`.
uint64_t bytes_of(const std::string& path, uint64_t most) {
  namespace fs = std::filesystem;
  std::error_code unreadable;
  if (!fs::is_directory(path, unreadable)) return fs::file_size(path, unreadable);
  uint64_t all = 0;
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(path, unreadable)) {
    if (entry.is_regular_file(unreadable)) all += entry.file_size(unreadable);
    if (all > most) break;
  }
  return all;
}

/// What makes the figures of the recipe that was written better than they will be for new data, as `trainrun data` finds
/// it.
std::vector<std::string> leaks_of(const InitOptions& options, Catalog& catalog) {
  constexpr uint64_t kMostBytes = uint64_t{1} << 30;  // since all of them are read
  if (bytes_of(options.data, kMostBytes) > kMostBytes) {
    return {"whether samples are in both sets was not looked at, since the data are large: trainrun data " +
            options.output + " does it"};
  }
  try {
    const LoadedRecipe loaded = load_recipe(options.output, {}, catalog);
    const bool has_images = loaded.recipe.dataset.train.build({})->facts().image_options != nullptr;
    DataSurveyOptions survey;
    survey.shown = 0;
    if (has_images) survey.measured = 1;  // decoded images tell nothing more here
    return survey_data(loaded, survey).leaks;
  } catch (const Error& error) {  // the recipe is written, and its run would end so, too
    return {std::string("the data cannot be read as the recipe says: ") + error.what()};
  }
}

void init(const InitArguments& arguments, Program& program) {
  if (arguments.editor) {
    const EditorSetUp set_up = set_up_editor(".", program.catalog);
    if (!program.quiet) std::fputs(to_text(set_up).c_str(), stdout);
  }
  if (arguments.data.empty()) {
    if (arguments.editor) return;
    throw CLI::RequiredError("data");
  }
  InitOptions options = arguments.options;
  options.data = arguments.data;
  options.target = given(arguments.target);
  options.task = given(arguments.task);
  options.weights = given(arguments.weights);
  if (!arguments.encoding.empty()) options.encoding = choice_of<TextEncoding>(arguments.encoding);
  options.name = arguments.name.empty() ? name_of(arguments.data) : arguments.name;
  options.output = arguments.output.empty() ? options.name + ".yaml" : arguments.output;
  options.schema = arguments.editor ? kSchemaFile : "";
  InitReport report = write_recipe(options, program.catalog, arguments.force);
  if (program.quiet) return;
  for (std::string& leak : leaks_of(options, program.catalog)) report.draft.doubts.push_back(std::move(leak));
  std::fputs(to_text(report, options).c_str(), stdout);
}

}  // namespace

void add_init(CLI::App& app, Program& program) {
  CLI::App* verb =
      app.add_subcommand("init", "look at your data, describe them, and write a commented recipe for them");
  const auto arguments = std::make_shared<InitArguments>();
  verb->add_option("data", arguments->data,
                   "a table, a folder of images, texts or tables, a text, conversations, or arrays (.npz)");
  verb->add_option("--output,-o", arguments->output, "the recipe to write (default: NAME.yaml)");
  verb->add_option("--name", arguments->name, "the name of the run (default: that of the data)");
  verb->add_option("--target", arguments->target, "the column, or the array, to predict");
  verb->add_option("--task", arguments->task, "whether the target is a class or a quantity")
      ->check(CLI::IsMember({"classification", "regression"}));
  verb->add_option("--text", arguments->options.texts, "the column of texts that a text model reads; twice for pairs")
      ->allow_extra_args(false);
  verb->add_option("--weights", arguments->weights,
                   "pretrained weights: a folder in Hugging Face's layout, or a file of a ResNet-18's weights");
  verb->add_option("--encoding", arguments->encoding,
                   "how files of text were saved (default: UTF-8, or UTF-16 if they show it)")
      ->check(CLI::IsMember(encoding_words()));
  verb->add_flag("--force", arguments->force, "replace a recipe that is there already");
  verb->add_flag("--editor", arguments->editor,
                 "write the JSON Schema here, and settings by which VS Code and other editors check recipes");
  verb->callback([&program, arguments] { init(*arguments, program); });
}

}  // namespace trainrun
