#include <nlohmann/json.hpp>

#include <cstdio>
#include <filesystem>
#include <memory>

#include "registry/formats/files/csv_text.h"
#include "registry/formats/files/file_io.h"
#include "registry/language/text_forms.h"
#include "runner/train/prediction.h"
#include "tools/verbs.h"

namespace trainrun {
namespace {

struct PredictArguments {
  RecipeArguments run;
  std::string data;
  std::string format = "csv";
  std::string output;
};

/// Makes a line of each prediction.
class Lines {
 public:
  /// `sample`: what predictions are called by.
  Lines(bool is_csv, const char* sample) : is_csv_(is_csv), sample_(sample) {}

  std::string header(const PredictedClasses& classes) {
    classes_ = classes.names;
    if (!is_csv_) return "";
    std::string line = std::string(sample_) + ",label,probability";
    for (const std::string& name : classes_) line += "," + csv_field("p(" + name + ")");
    return line + "\n";
  }

  std::string line(const Prediction& prediction) const {
    const double probability = prediction.probabilities[prediction.label];
    if (is_csv_) {
      std::string line =
          csv_field(prediction.sample) + "," + csv_field(classes_[prediction.label]) + "," + in_figures(probability, 6);
      for (const double each : prediction.probabilities) line += "," + in_figures(each, 6);
      return line + "\n";
    }
    nlohmann::ordered_json json = {
        {sample_, prediction.sample}, {"label", classes_[prediction.label]}, {"probability", probability}};
    for (size_t i = 0; i < classes_.size(); ++i) json["probabilities"][classes_[i]] = prediction.probabilities[i];
    return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
  }

 private:
  bool is_csv_;
  const char* sample_;
  std::vector<std::string> classes_;
};

}  // namespace

void add_predict(CLI::App& app, Program& program) {
  CLI::App* verb = app.add_subcommand(
      "predict", "write the class of each image of a folder, or of each text of a file, with all probabilities");
  const auto arguments = std::make_shared<PredictArguments>();
  verb->add_option("run", arguments->run.path,
                   "a run's folder (its best checkpoint, else its newest), or a checkpoint's")
      ->required();
  verb->add_option(
      "source,--data", arguments->data,
      "a folder of images, or a .csv, .tsv, .jsonl or .parquet file with the run's text columns; by default the "
      "recipe's dataset.eval");
  verb->add_option("overrides", arguments->run.overrides, "key=value: device=cpu");
  verb->add_option("--format", arguments->format, "csv (default) or jsonl")->check(CLI::IsMember({"csv", "jsonl"}));
  verb->add_option("--output,-o", arguments->output, "the file to write; standard output by default");
  verb->callback([&program, arguments] {
    if (arguments->data.find('=') != std::string::npos) {
      arguments->run.overrides.insert(arguments->run.overrides.begin(), arguments->data);
      arguments->data.clear();
    }
    const bool has_data = !arguments->data.empty();
    const bool is_file = has_data && std::filesystem::is_regular_file(arguments->data);
    const TrainedModel trained = find_trained(arguments->run.path);
    TrainedRun run(trained, arguments->run.overrides, program.catalog);
    std::unique_ptr<FileWriter> file;
    if (!arguments->output.empty()) file = std::make_unique<FileWriter>(arguments->output);
    const auto write = [&](const std::string& text) {
      file ? file->write(text) : static_cast<void>(std::fputs(text.c_str(), stdout));
    };
    Lines lines(arguments->format == "csv", is_file ? "line" : has_data ? "file" : "sample");
    predict(
        run, has_data ? std::optional(arguments->data) : std::nullopt,
        [&](const PredictedClasses& classes) {
          for (const std::string& note : run.notes()) std::fprintf(stderr, "note: %s\n", note.c_str());
          write(lines.header(classes));
        },
        [&](const Prediction& prediction) { write(lines.line(prediction)); });
    if (file) file->finish();
  });
}

}  // namespace trainrun
