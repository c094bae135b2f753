// What is found out about a model, or before it is trained: reports of classes, learning rates, predictions.
#include <cmath>
#include <filesystem>

#include "runner/predict/prediction.h"
#include "runner/predict/prediction_writer.h"
#include "runner/report/class_report.h"
#include "runner/report/lr_find.h"
#include "tests/runner/training_support.h"

namespace trainrun {
namespace {

using namespace test;

LoadedRecipe digits(const std::vector<std::string>& overrides, Catalog& catalog) {
  return load_recipe("tests/recipes/digits_small.yaml", overrides, catalog);
}

}  // namespace

TEST_CASE("a class report is made of the confusion matrix, a report for each set, and leaves the other figures") {
  Figures figures = {{"eval/clean/loss", 0.5}};
  const Figures counts = {{"0/0", 3}, {"0/1", 1}, {"1/0", 0}, {"1/1", 2}};
  for (const auto& [name, value] : counts) figures.emplace_back("eval/clean/class_report/" + name, value);
  for (const auto& [name, value] : counts) figures.emplace_back("eval/noisy/class_report/" + name, 0);
  const std::vector<ClassReport> reports = take_class_reports(figures);
  CHECK((figures == Figures{{"eval/clean/loss", 0.5}}));
  REQUIRE(reports.size() == 2);
  CHECK(reports[0].prefix == "eval/clean");
  CHECK(reports[0].accuracy() == doctest::Approx(5.0 / 6));
  const ClassReport::Row first = reports[0].row(0);
  const ClassReport::Row second = reports[0].row(1);
  CHECK(first.precision == 1);
  CHECK(first.recall == 0.75);
  CHECK(first.f1 == doctest::Approx(6.0 / 7));
  CHECK(first.samples == 4);
  CHECK(second.precision == doctest::Approx(2.0 / 3));
  CHECK(second.recall == 1);
  CHECK(second.f1 == doctest::Approx(0.8));
  CHECK(reports[1].row(0).f1 == 0);  // nothing there
  CHECK(to_text(reports[0]).find("          0     1.0000     0.7500     0.8571          4\n") != std::string::npos);
  CHECK(to_text(reports[0]).find("          0 3 1\n          1 0 2\n") != std::string::npos);
  CHECK(to_json(reports[0])["confusion_matrix"].dump() == "[[3,1],[0,2]]");
}

TEST_CASE("a report of several labels has a line for each, by its name, and the averages over them") {
  Figures figures;
  const Figures counts = {{"dog/0/0", 5},      {"dog/0/1", 1},      {"dog/1/0", 1},      {"dog/1/1", 3},
                          {"at night/0/0", 8}, {"at night/0/1", 2}, {"at night/1/0", 0}, {"at night/1/1", 0}};
  for (const auto& [name, value] : counts) figures.emplace_back("eval/class_report/" + name, value);
  const std::vector<ClassReport> reports = take_class_reports(figures);
  CHECK(figures.empty());
  REQUIRE(reports.size() == 1);
  CHECK(reports[0].has_labels);
  CHECK(reports[0].names == std::vector<std::string>{"dog", "at night"});
  CHECK(reports[0].accuracy() == doctest::Approx(16.0 / 20));
  CHECK(reports[0].row(0).precision == 0.75);
  CHECK(reports[0].row(1).precision == 0);
  const auto averages = reports[0].averages();
  CHECK(averages[0].second.precision == 0.5);              // micro: 3 of 6
  CHECK(averages[1].second.f1 == doctest::Approx(0.375));  // macro
  CHECK(averages[2].second.f1 == doctest::Approx(0.75));   // weighted: no sample has the second label
  CHECK(averages[2].second.samples == 4);
  const std::string text = to_text(reports[0]);
  CHECK(text.find("eval: of all labels 80.00 % are right\n") == 0);
  CHECK(text.find("        0 dog     0.7500     0.7500     0.7500          4\n") != std::string::npos);
  CHECK(to_json(reports[0])["labels"][1]["confusion_matrix"].dump() == "[[8,2],[0,0]]");
}

TEST_CASE("the learning rate that is suggested is where the loss falls fastest with its logarithm") {
  std::vector<LrFind::Point> points;
  for (int i = 0; i < 101; ++i) {
    const double lr = std::pow(10, -6 + 0.06 * i);
    const double loss = -std::tanh(std::log(lr / 1e-2));
    points.push_back({lr, loss, loss});
  }
  REQUIRE(steepest(points));
  CHECK(std::abs(std::log10(*steepest(points)) + 2) < 0.07);
  for (LrFind::Point& point : points) point.smoothed = point.lr;
  CHECK(!steepest(points));  // it only rises
}

TEST_CASE("lr-find raises the rate step by step from the first batch on, and ends where the loss explodes") {
  Catalog catalog = catalog_with();
  const auto loaded = digits({"optimizer={type: SGD, lr: 0.1}", "scheduler={type: LinearWithWarmup, warmup_steps: 5}",
                              "model.layers=[Flatten, {type: Linear, out_features: 10}]"},
                             catalog);
  const LrFind found = find_lr(loaded, {1e-4, 1e5, 60, 4});
  REQUIRE(found.points.size() > 15);
  CHECK(found.points.size() < 60);
  CHECK(!found.stopped.empty());
  for (size_t i = 0; i < found.points.size(); ++i) {
    CHECK(found.points[i].lr == doctest::Approx(1e-4 * std::pow(1e9, static_cast<double>(i) / 59)).epsilon(1e-9));
  }
  CHECK(found.points[0].loss == found.points[0].smoothed);
  REQUIRE(found.suggestion);
  CHECK(*found.suggestion > 1e-3);
  CHECK(*found.suggestion < 100);
  CHECK(to_text(found).find("The loss falls fastest at optimizer.lr=") != std::string::npos);
  CHECK(to_json(found)["points"].size() == found.points.size());

  const TemporaryFolder folder;
  Script script;
  train_in(folder / "run", script,
           {"training={max_steps: 1}", "evaluation.every=null", "optimizer={type: SGD, lr: 0.1}",
            "model.layers=[Flatten, {type: Linear, out_features: 10}]"});
  CHECK(script.lines.at(0).loss == doctest::Approx(found.points[0].loss).epsilon(1e-12));
}

namespace {

/// Keeps the columns of one batch.
class Kept : public PredictionWriter {
 public:
  void write(const ResultColumns& columns) override { columns_ = columns; }
  void finish() override {}
  double number(const std::string& name, int64_t row) const {
    return std::get<at::Tensor>(column(name).values)[row].item<double>();
  }
  std::vector<std::string> texts(const std::string& name) const {
    return std::get<std::vector<std::string>>(column(name).values);
  }

 private:
  const ResultColumn& column(const std::string& name) const {
    for (const ResultColumn& column : columns_) {
      if (column.name == name) return column;
    }
    throw Error("no column " + name);
  }
  ResultColumns columns_;
};

}  // namespace

TEST_CASE("predictions for the evaluation data agree with its accuracy, and probabilities add up to 1") {
  const TemporaryFolder folder;
  Script script;
  CHECK(train_in(folder / "run", script,
                 {"training={max_steps: 30}", "callbacks=[{type: EMA, decay: 0.9}]", "dataset.eval.subset=100"}) == 0);
  Catalog catalog = catalog_with();
  TrainedRun run(find_trained(folder / "run"), {"logging.report_to=[]"}, catalog);
  const Figures figures = evaluate_trained(run).figures;
  const auto labels = open_data(run.recipe().dataset.eval->sets[0].data, run.recipe())->column("label");
  Kept kept;
  PredictOptions options;
  options.batch_size = 100;
  CHECK(predict(run, options, kept).num_written == 100);
  int64_t right = 0;
  for (int64_t i = 0; i < 100; ++i) {
    double sum = 0;
    for (int number = 0; number < 10; ++number) sum += kept.number("p(" + std::to_string(number) + ")", i);
    CHECK(sum == doctest::Approx(1));
    CHECK(kept.number("sample", i) == static_cast<double>(i));
    right += kept.texts("label").at(static_cast<size_t>(i)) == std::to_string(labels[i].item<int64_t>()) ? 1 : 0;
  }
  CHECK(static_cast<double>(right) / 100 == doctest::Approx(*figure_of(figures, "eval/accuracy")));
}

TEST_CASE("a run that goes on may remove the checkpoint that was chosen before it is read: another one is read") {
  const TemporaryFolder folder;
  Script script;
  CHECK(train_in(folder / "run", script,
                 {"training={max_steps: 4}", "evaluation.every=null", "checkpoint={every: 2, keep_last: null}"}) == 0);
  const TrainedModel trained = find_trained(folder / "run");
  CHECK(trained.checkpoint.ends_with("step-00000004"));
  std::filesystem::remove_all(trained.checkpoint);
  Catalog catalog = catalog_with();
  const TrainedRun run(trained, {"logging.report_to=[]"}, catalog);
  CHECK(run.checkpoint().ends_with("step-00000002"));
  CHECK_THROWS_WITH_AS(TrainedRun({trained.recipe, trained.checkpoint}, {}, catalog),
                       doctest::Contains("is not a checkpoint: No such file or directory"), CheckpointError);
}

TEST_CASE("numbers are predicted; what is not there, or of another kind, is not") {
  const TemporaryFolder folder;
  Script script;
  CHECK(train_in(folder / "run", script,
                 {"training={max_steps: 1}", "loss=MSELoss", "metrics=[]", "dataset.train=null", "dataset.eval=null",
                  "dataset.train={type: Synthetic, num_samples: 64, shape: [3], task: regression}",
                  "dataset.eval={type: Synthetic, num_samples: 8, shape: [3], task: regression}",
                  "model.layers=[{type: Linear, out_features: 1}]"}) == 0);
  Catalog catalog = catalog_with();
  TrainedRun run(find_trained(folder / "run"), {"logging.report_to=[]"}, catalog);
  Kept kept;
  CHECK(predict(run, {}, kept).num_written == 8);
  CHECK(std::isfinite(kept.number("prediction", 7)));
  PredictOptions options;
  options.data = {folder / "images"};
  CHECK_THROWS_WITH_AS(predict(run, options, kept), doctest::Contains("images is not there"), Error);
  std::filesystem::create_directory(folder / "images");
  CHECK_THROWS_WITH_AS(predict(run, options, kept), doctest::Contains("Synthetic data cannot be read without labels"),
                       Error);
}

}  // namespace trainrun
