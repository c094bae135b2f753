#include <nlohmann/json.hpp>

#include <array>
#include <cmath>
#include <cstdio>
#include <memory>

#include "runner/report/class_report.h"
#include "runner/train/evaluation.h"
#include "runner/train/finite.h"
#include "runner/train/train_loop.h"
#include "tools/verbs.h"

namespace trainrun {
namespace {

/// Six figures: "0.0412"; never "-nan".
std::string plain(double number) {
  if (std::isnan(number)) return "nan";
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.6g", number);
  return text.data();
}

}  // namespace

void add_eval(CLI::App& app, Program& program) {
  CLI::App* verb = app.add_subcommand("eval", "evaluate the model that a run saved");
  const auto arguments = std::make_shared<RecipeArguments>();
  const auto as_json = std::make_shared<bool>(false);
  const auto with_report = std::make_shared<bool>(false);
  verb->add_option("run", arguments->path, "a run's folder (its best checkpoint, else its newest), or a checkpoint's")
      ->required();
  verb->add_option("overrides", arguments->overrides, "key=value: dataset.eval.root=other");
  verb->add_flag("--json", *as_json, "print one JSON object");
  verb->add_flag("--report", *with_report,
                 "of a classifier also print precision, recall and F1 of each class, and the confusion matrix");
  verb->callback([&program, arguments, as_json, with_report] {
    const TrainedModel trained = find_trained(arguments->path);
    std::vector<std::pair<std::string, std::string>> extra;
    if (*with_report) extra.emplace_back("ConfusionMatrix", kClassReport);
    TrainedRun run(trained, arguments->overrides, program.catalog, extra);
    Figures figures = evaluate_trained(run);
    std::vector<ClassReport> reports = take_class_reports(figures);
    if (!reports.empty()) {
      const std::vector<std::string> names = trained_class_names(run.recipe());
      for (ClassReport& report : reports) report.names = names;
    }
    nlohmann::ordered_json object = {{"checkpoint", run.checkpoint()}};
    if (!*as_json) std::printf("%s\n", run.checkpoint().c_str());
    for (const auto& [name, value] : figures) {
      object[name] = value;
      if (!*as_json) std::printf("%s %s\n", name.c_str(), plain(value).c_str());
    }
    for (const ClassReport& report : reports) {
      object["report"][report.prefix] = to_json(report);
      if (!*as_json) std::printf("\n%s", to_text(report).c_str());
    }
    if (*as_json) std::printf("%s\n", object.dump().c_str());
    if (const auto fault = non_finite_loss(figures)) throw TrainingError("the evaluation failed: " + *fault);
  });
}

}  // namespace trainrun
