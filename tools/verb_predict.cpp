#include <nlohmann/json.hpp>

#include <cstdio>
#include <filesystem>
#include <memory>

#include "registry/language/error.h"
#include "registry/language/text_forms.h"
#include "runner/predict/command_advice.h"
#include "runner/predict/prediction.h"
#include "tools/number_checks.h"
#include "tools/verbs.h"

namespace trainrun {
namespace {

struct PredictArguments {
  RecipeArguments run;
  std::vector<std::string> rest;  // DATA, and overrides of the recipe
  std::string data;
  int64_t top_k = 0;
  int64_t batch_size = 0;
  std::string broken = "error";
  std::string split;
  std::string config;
  std::string format;
  PredictOptions options;
};

/// Sorts what follows RUN: what lies on the disk, "-", and what has no "=" is DATA.
void sort_rest(PredictArguments& arguments) {
  for (const std::string& word : arguments.rest) {
    const bool is_override = word.find('=') != std::string::npos && !std::filesystem::exists(word);
    (is_override ? arguments.run.overrides : arguments.options.data).push_back(word);
  }
}

/// By the ending of the file that is written; csv where it has none. Throws Error for one of another format.
std::string format_of(const PredictArguments& arguments) {
  if (!arguments.format.empty()) return arguments.format;
  const std::string& output = arguments.options.output;
  const std::string ending = lower_ascii(std::filesystem::path(output).extension());
  if (ending == ".jsonl" || ending == ".json" || ending == ".ndjson") return "jsonl";
  if (ending == ".npz" || ending == ".parquet" || ending == ".conll") return ending.substr(1);
  if (ending.empty() || ending == ".csv" || ending == ".txt") return "csv";
  throw Error("predict: --output " + output + ": files that end in " + ending +
              " are not written; write a name that ends in .csv, .jsonl, .parquet, .npz or, for tags of words, .conll, "
              "or add --format csv to have CSV under this name");
}

void report(const TrainedRun& run, const PredictSummary& summary, const PredictOptions& options) {
  for (const std::string& note : run.notes()) std::fprintf(stderr, "note: %s\n", note.c_str());
  for (const std::string& fault : summary.left_out) {
    std::fprintf(stderr, "left out: %s\n", for_command(fault, run.recipe()).c_str());
  }
  if (summary.num_left_out > 0) {
    std::fprintf(stderr, "note: %lld of %lld samples could not be read and are left out\n",
                 static_cast<long long>(summary.num_left_out), static_cast<long long>(summary.num_read));
  }
  if (summary.num_not_finite > 0) {
    std::fprintf(stderr, "note: %lld of the predicted numbers are not finite\n",
                 static_cast<long long>(summary.num_not_finite));
  }
  if (options.output.empty()) return;
  const int64_t samples = summary.num_read - summary.num_left_out;
  const std::string rows = summary.num_written == samples ? "" : ", " + counted(summary.num_written, "row", "rows");
  std::fprintf(stderr, "%s: predictions for %lld %s%s\n", options.output.c_str(), static_cast<long long>(samples),
               samples == 1 ? "sample" : "samples", rows.c_str());
}

}  // namespace

void add_predict(CLI::App& app, Program& program) {
  CLI::App* verb =
      app.add_subcommand("predict", "write a trained model's predictions for new data, which need no labels");
  const auto arguments = std::make_shared<PredictArguments>();
  verb->add_option("run", arguments->run.path,
                   "a run's folder (its best checkpoint, else its newest), or a checkpoint's")
      ->required();
  verb->add_option("data", arguments->rest,
                   "what to predict for, in the form of the training data: tables (CSV, JSON lines, Parquet, SQLite, "
                   "whichever the model was trained on), pictures and folders of them, files of texts, - for standard "
                   "input, files, folders and patterns of Hugging Face's hub (hf://datasets/ORG/NAME/FILE) or, with "
                   "--split, a data set of it (hf://datasets/ORG/NAME); by default the recipe's dataset.eval. And "
                   "key=value: device=cpu");
  verb->add_option("--data", arguments->data, "the same, for one file or folder");
  verb->add_option("--split", arguments->split,
                   "for a data set of the hub: the split to predict for, such as test or validation");
  verb->add_option("--config", arguments->config,
                   "for a data set of the hub that consists of several tables: which one");
  verb->add_option(
          "--format", arguments->format,
          "csv (default), jsonl, parquet, npz or, for tags of words, conll; by default the ending of --output decides")
      ->check(CLI::IsMember({"csv", "jsonl", "conll", "parquet", "npz"}));
  verb->add_option(
      "--output,-o", arguments->options.output,
      "the file to write (default: standard output). If predict was killed, the same command continues the file");
  verb->add_option("--masks", arguments->options.outcome.masks,
                   "the folder for the masks of a segmentation, a PNG file for each picture");
  verb->add_option("--top-k", arguments->top_k,
                   "only this many of the most probable classes, instead of all probabilities")
      ->check(whole_from(1));
  verb->add_option("--threshold", arguments->options.outcome.threshold,
                   "with several labels: the probability from which on a sample has a label (default: 0.5)")
      ->check(share(true));
  verb->add_option("--batch-size", arguments->batch_size, "samples in a forward pass")->check(whole_from(1));
  verb->add_option(
          "--broken", arguments->broken,
          "what to do with samples that cannot be read: error (default), or skip: name, count and leave them out")
      ->check(CLI::IsMember({"error", "skip"}));
  verb->callback([&program, arguments] {
    sort_rest(*arguments);
    PredictOptions& options = arguments->options;
    if (!arguments->data.empty()) options.data.insert(options.data.begin(), arguments->data);
    options.format = format_of(*arguments);
    if (arguments->top_k > 0) options.outcome.top_k = arguments->top_k;
    if (arguments->batch_size > 0) options.batch_size = arguments->batch_size;
    if (!arguments->split.empty()) options.hub_rows.split = arguments->split;
    if (!arguments->config.empty()) options.hub_rows.config = arguments->config;
    if (arguments->broken == "skip") options.broken = BrokenSamples::kSkip;
    options.identity = arguments->run.overrides;
    const TrainedModel trained = find_trained(arguments->run.path);
    TrainedRun run(trained, arguments->run.overrides, program.catalog);
    try {
      report(run, predict(run, options), options);
    } catch (const DataError& error) {
      throw DataError(for_command(error.what(), run.recipe()));
    }
  });
}

}  // namespace trainrun
