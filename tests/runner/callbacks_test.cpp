// Callbacks in whole runs: stopped at every step and gone on, they end as if nothing had been.
#include "runner/train/callbacks.h"

#include <algorithm>
#include <cmath>
#include <csignal>
#include <limits>

#include "registry/kinds/metric_details.h"
#include "tests/runner/training_support.h"
#include "tests/sanitizers.h"

namespace trainrun {
namespace {

using namespace test;

/// 12 steps, evaluated every other one; BatchNorm has buffers, Dropout draws.
const std::vector<std::string> kShort = {"training={max_steps: 12}", "evaluation.every=2",
                                         "dataloader.eval_batch_size=359", "checkpoint={every: 5, keep_last: 2}"};

/// The sanitizers find in a run that is resumed after one step what they find after any other.
constexpr int64_t kEveryStop = kIsSanitized ? 5 : 1;

std::vector<std::string> with_another(std::vector<std::string> overrides, const std::string& more) {
  overrides.push_back(more);
  return overrides;
}

/// Stops a run after each step in turn, goes on, and compares its end with that of `folder`/whole.
void check_resumes_at_every_step(const TemporaryFolder& folder, const std::vector<std::string>& overrides,
                                 int64_t num_steps) {
  for (int64_t step = 1; step < num_steps; step += kEveryStop) {
    CAPTURE(step);
    const std::string run = folder / ("stopped-" + std::to_string(step));
    Script stopped;
    stopped.in_training = [=](const at::Tensor& input, int64_t batch) {
      if (batch == step) std::raise(SIGTERM);
      return input;
    };
    CHECK(train_in(run, stopped, overrides) == SIGTERM);
    Script rest;
    CHECK(train_in(run, rest, overrides) == 0);
    check_same_outcome(run, folder / "whole");
  }
}

std::vector<double> curve;  // what CurveMetric gives, one figure an evaluation

/// Gives the figures of `curve`, at the step where the run stands, so that a resumed run sees the same.
class CurveCallback : public Callback {
 public:
  void after_step(Run& run, const StepResult&) override { step = run.step(); }
  static inline int64_t step = 0;
};

struct CurveWatcher {
  static void describe(Fields<CurveWatcher>&) {}
  std::unique_ptr<Callback> build(const CallbackInputs&) const { return std::make_unique<CurveCallback>(); }
};

class CurveValue : public Metric, public DetailedMetric {
 public:
  std::optional<MonitorMode> better(const std::string&) const override { return MonitorMode::kMin; }
  void update(const Tensors&) override {}
  Figures compute() const override {
    const auto i = static_cast<size_t>(CurveCallback::step / 2);
    return {{"", i >= 1 && i <= curve.size() ? curve[i - 1] : 0}};
  }
  void reset() override {}
};

struct CurveMetric {
  static void describe(Fields<CurveMetric>&) {}
  std::unique_ptr<Metric> build(const MetricInputs&) const { return std::make_unique<CurveValue>(); }
};

Catalog& catalog_with_curve() {
  static Catalog catalog = catalog_with([](Catalog& made) {
    made.metrics.add<CurveMetric>("Curve", "figures made by hand");
    made.callbacks.add<CurveWatcher>("CurveWatcher", "tells Curve the step");
  });
  return catalog;
}

std::vector<std::string> stopping_by(const std::string& options) {
  return {"training={max_steps: 40}",
          "evaluation.every=2",
          "dataloader.eval_batch_size=359",
          "metrics=[Curve]",
          "checkpoint={every: 3, keep_best: {monitor: eval/curve, mode: min}}",
          "callbacks=[CurveWatcher, {type: EarlyStopping, monitor: eval/curve, " + options + "}]"};
}

/// The evaluation at which a run ends, counted from 1.
int64_t evaluations_of(const std::vector<double>& figures, const std::string& options) {
  curve = figures;
  const TemporaryFolder folder;
  Script script;
  Catalog& catalog = catalog_with_curve();
  CHECK(train_in(folder / "run", script, stopping_by(options), catalog) == 0);
  CHECK(script.reason.empty());  // it is done
  return static_cast<int64_t>(script.evaluations.size());
}

}  // namespace

TEST_CASE("early stopping ends training where Lightning and Keras end it") {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  CHECK(evaluations_of({5, 4, 3, 3, 3.5, 2, 2, 2, 2}, "patience: 3") == 9);
  CHECK(evaluations_of({5, 4, 3, 3, 3.5, 2, 2, 2, 2}, "patience: 2") == 5);
  CHECK(evaluations_of({5, 4, 3, 3, 3.5, 2, 2, 2, 2}, "patience: 1") == 4);
  CHECK(evaluations_of({5, 4, 3, 3, 3.5, 2, 2, 2, 2}, "patience: 0") == 4);
  CHECK(evaluations_of({5, 4.9, 4.8, 4.7, 4.6, 4.5, 4.48}, "patience: 3, min_delta: 0.25") == 7);  // 4.7 is better
  CHECK(evaluations_of({5, 4.9, 4.8, 4.7, 4.6, 4.5, 4.48}, "patience: 2, min_delta: 0.25") == 3);
  CHECK(evaluations_of({1, 2, 3, 2, 2}, "patience: 2, mode: max") == 5);
  CHECK(evaluations_of({1, 2, 3, 2, 2}, "patience: 2, mode: min") == 3);
  CHECK(evaluations_of({5, nan, nan, 4, nan, nan, nan}, "patience: 3") == 7);
}

TEST_CASE("a run that stops early is done: it says why, in the log and in its summary, and its last state is saved") {
  curve = {5, 4, 4, 4};
  const TemporaryFolder folder;
  Script script;
  Catalog& catalog = catalog_with_curve();
  CHECK(train_in(folder / "run", script, stopping_by("patience: 2"), catalog) == 0);
  const std::string why = "eval/curve has not improved for 2 evaluations: it is 4, the best was 4";
  CHECK(content_of(folder / "run/log.txt").find("training ends after step 8: " + why) != std::string::npos);
  CHECK(nlohmann::json::parse(content_of(folder / "run/summary.json"))["stopped"] == why);
  CHECK(script.checkpoints.back() == 8);  // none is due there
  CHECK(std::filesystem::read_symlink(folder / "run/checkpoints/latest") == "step-00000008");
}

namespace {

/// Stops a run in `step`, resumes it, and compares how it ends with the run "whole" in the folder.
void check_resumed(const TemporaryFolder& folder, int64_t step, const std::vector<std::string>& overrides,
                   Catalog& catalog) {
  const std::string run = folder / ("stopped-" + std::to_string(step));
  Script stopped;
  stopped.in_training = [=](const at::Tensor& input, int64_t batch) {
    if (batch == step) std::raise(SIGTERM);
    return input;
  };
  CHECK(train_in(run, stopped, overrides, catalog) == SIGTERM);
  CurveCallback::step = step;
  Script rest;
  CHECK(train_in(run, rest, overrides, catalog) == 0);
  check_same_outcome(run, folder / "whole");
}

}  // namespace

TEST_CASE("early stopping that is stopped at any step goes on to end where it would have ended") {
  curve = {5, 4, 4.5, 4.5, 3, 3, 3, 3};
  const TemporaryFolder folder;
  const std::vector<std::string> overrides = stopping_by("patience: 3");
  Catalog& catalog = catalog_with_curve();
  Script whole;
  CHECK(train_in(folder / "whole", whole, overrides, catalog) == 0);
  CHECK(whole.evaluations.size() == 8);
  for (int64_t step = 1; step < 16; step += kEveryStop) {
    CAPTURE(step);
    check_resumed(folder, step, overrides, catalog);
  }
}

namespace {

/// Best at step 6, over 12 steps.
std::vector<std::string> restoring(const std::string& patience) {
  curve = {5, 4, 3, 6, 6, 6};
  return {"training={max_steps: 12}",
          "evaluation.every=2",
          "dataloader.eval_batch_size=359",
          "metrics=[Curve]",
          "checkpoint={every: 2, keep_last: null}",
          "callbacks=[CurveWatcher, {type: EMA, decay: 0.9, use_buffers: true}, {type: EarlyStopping, monitor: "
          "eval/curve, restore_best: true, patience: " +
              patience + "}]"};
}

/// The model's weights and buffers, and the averages of EMA.
std::map<std::string, std::string> weights_of(const std::string& checkpoint) {
  std::map<std::string, std::string> weights = {{"model", content_of(checkpoint + "/model.safetensors")}};
  for (const auto& [name, tensor] : CheckpointStore::load(checkpoint).optimizer) {
    if (!name.starts_with("callbacks[1].")) continue;
    const at::Tensor whole = tensor.contiguous();
    weights[name] = std::string(static_cast<const char*>(whole.data_ptr()), whole.nbytes());
  }
  return weights;
}

}  // namespace

TEST_CASE("restore_best ends a run with the weights of its best evaluation, whether it was stopped early or not") {
  for (const char* patience : {"3", "30"}) {
    CAPTURE(patience);
    const TemporaryFolder folder;
    const auto overrides = restoring(patience);
    Catalog& catalog = catalog_with_curve();
    Script script;
    CHECK(train_in(folder / "whole", script, overrides, catalog) == 0);
    CHECK(script.evaluations.size() == 7);  // the restored weights are evaluated, too
    CHECK(script.evaluations.back().step == 12);
    const auto best = weights_of(folder / "whole/checkpoints/step-00000006");
    CHECK(best.size() > 5);
    CHECK((weights_of(folder / "whole/checkpoints/latest") == best));
    CHECK((weights_of(folder / "whole/checkpoints/step-00000010") != best));
    CHECK(content_of(folder / "whole/log.txt").find("the run ends with the weights of step 6") != std::string::npos);
    // The best is at hand when it is resumed, wherever it was stopped.
    for (int64_t step = 5; step < 12; step += kEveryStop) {
      CAPTURE(step);
      check_resumed(folder, step, overrides, catalog);
    }
  }
}

TEST_CASE("a run that is killed right after the checkpoint of its best evaluation ends with these weights") {
  const TemporaryFolder folder;
  const auto overrides = restoring("30");
  Catalog& catalog = catalog_with_curve();
  Script whole;
  CHECK(train_in(folder / "whole", whole, overrides, catalog) == 0);
  const auto options = std::filesystem::copy_options::recursive | std::filesystem::copy_options::copy_symlinks;
  std::filesystem::copy(folder / "whole", folder / "run", options);
  std::filesystem::remove(folder / "run/summary.json");
  for (const char* later : {"8", "10", "12"}) {
    const std::string name = std::string(later).size() == 1 ? "0" + std::string(later) : later;
    std::filesystem::remove_all(folder / ("run/checkpoints/step-000000" + name));
  }
  CurveCallback::step = 6;
  Script rest;
  CHECK(train_in(folder / "run", rest, overrides, catalog) == 0);
  CHECK(rest.training_batches == 6);
  CHECK((weights_of(folder / "run/checkpoints/latest") == weights_of(folder / "whole/checkpoints/step-00000006")));
}

TEST_CASE("restore_best leaves a run as it is whose last evaluation is its best") {
  const TemporaryFolder folder;
  const auto overrides = restoring("3");
  curve = {6, 5, 4, 3, 2, 1};
  Catalog& catalog = catalog_with_curve();
  Script script;
  CHECK(train_in(folder / "run", script, overrides, catalog) == 0);
  CHECK(script.evaluations.size() == 6);
}

TEST_CASE("keep_best and restore_best that watch different figures both keep their best") {
  struct Case {
    const char* patience;
    int64_t end;        // the step of the last evaluation, which is the best by keep_best
    const char* every;  // the last step is saved before its evaluation, or not
  };
  for (const Case& one : {Case{"30", 12, "2"}, Case{"2", 10, "4"}}) {
    CAPTURE(one.end);
    const TemporaryFolder folder;
    const auto overrides =
        with_another(restoring(one.patience), "checkpoint={every: " + std::string(one.every) +
                                                  ", keep_last: 1, keep_best: {monitor: eval/curve, mode: max}}");
    curve = {5, 4, 3, 6, 6, 6};
    curve[static_cast<size_t>(one.end / 2 - 1)] = 7;
    Catalog& catalog = catalog_with_curve();
    Script whole;
    CHECK(train_in(folder / "all", whole, restoring(one.patience), catalog) == 0);
    curve = {5, 4, 3, 6, 6, 6};
    curve[static_cast<size_t>(one.end / 2 - 1)] = 7;
    Script script;
    CHECK(train_in(folder / "run", script, overrides, catalog) == 0);
    const auto restored = weights_of(folder / "all/checkpoints/step-00000006");
    const std::string last = "step-000000" + std::to_string(one.end);
    CHECK((weights_of(folder / "run/checkpoints/latest") == restored));
    CHECK(std::filesystem::read_symlink(folder / "run/checkpoints/latest") == last + "-restored");
    CHECK(std::filesystem::read_symlink(folder / "run/checkpoints/best") == last);
    const auto best = weights_of(folder / "run/checkpoints/best");
    CHECK((best != restored));

    // Killed before the restored weights were saved: the evaluation is made again.
    std::filesystem::remove(folder / "run/summary.json");
    std::filesystem::remove_all(folder / ("run/checkpoints/" + last + "-restored"));
    CurveCallback::step = one.end;
    Script again;
    CHECK(train_in(folder / "run", again, overrides, catalog) == 0);
    CHECK(again.training_batches == 0);
    CHECK((weights_of(folder / "run/checkpoints/latest") == restored));
    CHECK((weights_of(folder / "run/checkpoints/best") == best));
  }
}

TEST_CASE("a run that is killed after the verdict and before its end does not train on") {
  curve = {5, 5, 5};
  const TemporaryFolder folder;
  const std::vector<std::string> overrides = stopping_by("patience: 2");
  Catalog& catalog = catalog_with_curve();
  Script whole;
  CHECK(train_in(folder / "whole", whole, overrides, catalog) == 0);
  std::filesystem::copy(folder / "whole", folder / "run",
                        std::filesystem::copy_options::recursive | std::filesystem::copy_options::copy_symlinks);
  std::filesystem::remove(folder / "run/summary.json");  // as if it had been killed before it wrote that
  Script again;
  CHECK(train_in(folder / "run", again, overrides, catalog) == 0);
  CHECK(again.training_batches == 0);
  CHECK(std::filesystem::exists(folder / "run/summary.json"));
}

TEST_CASE("an average of the weights goes on from every step, bit for bit") {
  for (const std::string callback : {"EMA, decay: 0.5, use_buffers: true", "SWA, start_step: 3, every_steps: 4"}) {
    CAPTURE(callback);
    const TemporaryFolder folder;
    const auto overrides = with_another(kShort, "callbacks=[{type: " + callback + "}]");
    Script whole;
    CHECK(train_in(folder / "whole", whole, overrides) == 0);
    check_resumes_at_every_step(folder, overrides, 12);
  }
}

TEST_CASE("averaged weights are evaluated where asked for, and training goes on with the model's own") {
  const TemporaryFolder folder;
  const std::string saved = "/checkpoints/latest/model.safetensors";
  Script plain, averaged, unused;
  CHECK(train_in(folder / "plain", plain, kShort) == 0);
  CHECK(train_in(folder / "averaged", averaged, with_another(kShort, "callbacks=[{type: EMA, decay: 0.9}]")) == 0);
  CHECK(train_in(folder / "unused", unused,
                 with_another(kShort, "callbacks=[{type: EMA, decay: 0.9, use_for_evaluation: false}]")) == 0);
  CHECK(content_of(folder / ("averaged" + saved)) == content_of(folder / ("plain" + saved)));
  CHECK(content_of(folder / ("unused" + saved)) == content_of(folder / ("plain" + saved)));
  REQUIRE(plain.evaluations.size() == averaged.evaluations.size());
  for (size_t i = 0; i < plain.evaluations.size(); ++i) {
    CHECK(unused.evaluations[i].metrics == plain.evaluations[i].metrics);
    CHECK(averaged.evaluations[i].metrics != plain.evaluations[i].metrics);
  }
}

TEST_CASE("a checkpoint that is asked for within an evaluation holds the model's own weights") {
  const TemporaryFolder folder;
  const auto overrides = with_another(kShort, "callbacks=[{type: EMA, decay: 0.9}]");
  const auto smaller = with_another(overrides, "dataloader.eval_batch_size=64");
  Script whole;
  CHECK(train_in(folder / "whole", whole, smaller) == 0);
  Script asked;
  asked.in_evaluation = [](const at::Tensor& input, int64_t batch) {
    if (batch == 9) std::raise(SIGUSR1);  // within the second evaluation, after step 4
    return input;
  };
  CHECK(train_in(folder / "asked", asked, smaller) == 0);
  CHECK(std::find(asked.checkpoints.begin(), asked.checkpoints.end(), 4) != asked.checkpoints.end());
  check_same_outcome(folder / "asked", folder / "whole");
  REQUIRE(asked.evaluations.size() == whole.evaluations.size());
  for (size_t i = 0; i < whole.evaluations.size(); ++i)
    CHECK(asked.evaluations[i].metrics == whole.evaluations[i].metrics);
}

namespace {

/// Evaluates the mean of what the model says of a batch and of its negative.
class Twice : public Scope, public Predictor {
 public:
  Predictor* predictor() override { return this; }
  Tensors predict(const Batch& batch, const Forward& forward) override {
    Batch negative = batch;
    negative.set("image", -batch.at("image"));
    const Tensors first = forward(batch);
    const Tensors second = forward(negative);
    return {(first[0] + second[0]) / 2};
  }
};

class TwiceCallback : public Callback {
 public:
  std::unique_ptr<Scope> around_evaluation(Run&) override { return std::make_unique<Twice>(); }
};

struct BothSigns {
  static void describe(Fields<BothSigns>&) {}
  std::unique_ptr<Callback> build(const CallbackInputs&) const { return std::make_unique<TwiceCallback>(); }
};

}  // namespace

TEST_CASE("a callback's predictor decides what an evaluation reads of a batch") {
  const TemporaryFolder folder;
  Catalog catalog = catalog_with([](Catalog& made) { made.callbacks.add<BothSigns>("BothSigns", "both signs"); });
  // Without a bias a linear model says the opposite of the opposite: the mean is nothing, and the loss that of a guess.
  const std::vector<std::string> linear = {
      "model.layers=[Probe, Flatten, {type: Linear, out_features: 10, bias: false}]", "training={max_steps: 6}",
      "dataloader.eval_batch_size=359"};
  Script script;
  CHECK(train_in(folder / "run", script, with_another(linear, "callbacks=[BothSigns]"), catalog) == 0);
  CHECK(script.evaluation_batches == 2);
  CHECK(script.evaluations.back().metrics[0].second == doctest::Approx(std::log(10.0)));
}

}  // namespace trainrun
