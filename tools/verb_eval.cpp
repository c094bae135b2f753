#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <map>
#include <memory>

#include "registry/language/text_forms.h"
#include "runner/data/data_part.h"
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
  return in_figures(number, 6);
}

/// What the figures of a regression's report are called.
constexpr const char* kRegressionReport = "regression_report";

/// The metrics that make the report: of a classifier, or of several labels, a confusion matrix; of a regression its
/// errors. Throws Error where there is nothing to report.
std::vector<ExtraMetric> report_metrics(const Recipe& recipe) {
  const Component<LossKind>& loss = recipe.loss[0];
  using Target = LossFacts::Target;
  const Target target = loss.facts({}).target;
  const bool is_of_vectors = loss.type == "CosineSimilarityLoss";  // which learns numbers that are no output
  if (target == Target::kOther || target == Target::kCounts || is_of_vectors) {
    throw Error(
        "eval: --report is for classifiers, models of several labels and regressions, but this model is trained "
        "by " +
        loss.type + "; leave --report out");
  }
  if (target == Target::kClasses && loss.attributes.value("class_dim", 1) != 1) {
    throw Error(
        "eval: --report is for a class of each sample or pixel, but this model gives one for each token; leave "
        "--report out, and let `metrics` have an EntityF1 with average: none, or an Accuracy with class_dim: -1");
  }
  Names inputs = loss.common.inputs;
  if (inputs.size() > 2) inputs.resize(2);  // output and target come first
  if (target != Target::kNumbers && target != Target::kScaled) return {{"ConfusionMatrix", kClassReport, inputs}};
  std::vector<ExtraMetric> metrics;
  for (const auto& [type, name] : {std::pair("RMSE", "rmse"), std::pair("MAE", "mae"), std::pair("R2", "r2")}) {
    metrics.push_back({type, std::string(kRegressionReport) + "/" + name, inputs});
  }
  return metrics;
}

/// Takes the figures of regressions' reports out of `figures`: {"eval", {"rmse", 0.1}}.
std::map<std::string, Figures> take_regression_reports(Figures& figures) {
  const std::string mark = std::string("/") + kRegressionReport + "/";
  std::map<std::string, Figures> reports;
  std::erase_if(figures, [&](const auto& figure) {
    const size_t at = figure.first.find(mark);
    if (at == std::string::npos) return false;
    reports[figure.first.substr(0, at)].emplace_back(figure.first.substr(at + mark.size()), figure.second);
    return true;
  });
  return reports;
}

/// Where the user named other data, of which the recipe takes a part, as of its own: a set of them each.
void note_parts(TrainedRun& run, const std::vector<std::string>& overrides, const EvaluatedSets& evaluated) {
  if (std::none_of(overrides.begin(), overrides.end(), names_evaluation_data)) return;
  const std::vector<EvalSets::One>& sets = run.recipe().dataset.eval->sets;
  for (size_t i = 0; i < sets.size(); ++i) {
    const std::string taker = what_takes_a_part(sets[i].data);
    if (taker.empty()) continue;
    run.add_notes({"the figures are for the part of the data that " + taker + " takes (samples: " +
                   std::to_string(evaluated.samples[i]) + "); for all of them add '" + taker + "=!remove'"});
  }
}

void print_regression(const std::string& prefix, const Figures& report) {
  std::printf("\n%s: errors of the predicted numbers\n", prefix.c_str());
  for (const auto& [name, value] : report) std::printf("%11s %s\n", name.c_str(), plain(value).c_str());
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
  verb->add_flag(
      "--report", *with_report,
      "also print precision, recall and F1 of each class and the confusion matrix (classifiers), the same for "
      "each label (several labels), or the errors (regressions)");
  verb->callback([&program, arguments, as_json, with_report] {
    const TrainedModel trained = find_trained(arguments->path);
    TrainedRun run(trained, arguments->overrides, program.catalog, *with_report ? report_metrics : ExtraMetrics());
    EvaluatedSets evaluated = evaluate_trained(run);
    note_parts(run, arguments->overrides, evaluated);
    for (const std::string& note : run.notes()) std::fprintf(stderr, "note: %s\n", note.c_str());
    Figures& figures = evaluated.figures;
    const std::map<std::string, Figures> regressions = take_regression_reports(figures);
    std::vector<ClassReport> reports = take_class_reports(figures);
    for (ClassReport& report : reports) {
      if (report.has_labels) continue;
      report.names = evaluated.class_names[report.prefix];
      for (size_t i = report.names.size(); i > 0 && i < report.classes; ++i) {  // outputs that no class has
        report.names.push_back("LABEL_" + std::to_string(i));
      }
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
    for (const auto& [prefix, report] : regressions) {
      for (const auto& [name, value] : report) object["report"][prefix][name] = value;
      if (!*as_json) print_regression(prefix, report);
    }
    if (*as_json) std::printf("%s\n", object.dump().c_str());
    if (const auto fault = non_finite_loss(figures)) throw TrainingError("the evaluation failed: " + *fault);
  });
}

}  // namespace trainrun
