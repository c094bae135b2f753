// One component of every kind. They are so simple that plugins_test.py can follow a whole run with pencil and paper.
#include <ATen/ATen.h>
#include <torch/nn/module.h>

#include <cmath>
#include <fstream>

#include "registry/graph/graph.h"
#include "registry/plugin.h"

namespace {

using trainrun::Fields;
using trainrun::Tensors;

// --- layer: y = gain * x, the gain learned ---

struct Gain {
  double initial = 1;
  std::optional<int64_t> num_features;
  std::optional<double> limit;

  static void describe(Fields<Gain>& f) {
    f.optional("initial", &Gain::initial).doc("every gain before the first step");
    f.optional("num_features", &Gain::num_features).at_least(1).doc("size of the last dimension; inferred");
    f.optional("limit", &Gain::limit).at_least(0).doc("each forward pass cuts gains off there");
  }
  trainrun::Layer build(const trainrun::LayerInputs& in) const {
    const auto state = std::make_shared<torch::nn::Module>();
    const at::Tensor gain =
        state->register_parameter("gain", at::full({in.infer("num_features", num_features, -1)}, initial));
    return {state, [gain, limit = limit](const Tensors& inputs) -> Tensors {
              if (limit) gain.detach().clamp_(-*limit, *limit);
              return {gain * inputs[0]};
            }};
  }
  void onnx(trainrun::OnnxForm& form) const {
    if (limit) form.refuse("limit changes the gains as the layer computes");
    form.give(form.op("Mul", {form.state("gain"), form.input()}));
  }
};

// --- loss ---

struct HalfSquaredError {
  static void describe(Fields<HalfSquaredError>&) {}
  trainrun::Loss build(const trainrun::LayerInputs& in) const {
    in.require_inputs(2, 2);
    if (in.shape(0) != in.shape(1)) throw trainrun::LayerError("output and target must be alike");
    return {nullptr, [](const Tensors& inputs) { return (inputs[0] - inputs[1]).square().mean() / 2; }};
  }
};

// --- metric: the mean of output - target ---

class BiasMetric : public trainrun::Metric {
 public:
  BiasMetric() { BiasMetric::reset(); }
  void update(const Tensors& inputs) override {
    sums_[0] += (inputs[0].to(at::kDouble) - inputs[1].to(at::kDouble)).sum();
    sums_[1] += static_cast<double>(inputs[0].numel());
  }
  std::vector<std::pair<std::string, double>> compute() const override {
    const auto count = sums_[1].item<double>();
    return {{"", count == 0 ? 0.0 : sums_[0].item<double>() / count}};
  }
  void reset() override { sums_ = at::zeros({2}, at::kDouble); }
  std::vector<at::Tensor> sums() const override { return {sums_}; }
  void set_sums(const std::vector<at::Tensor>& sums) override { sums_ = sums.at(0); }

 private:
  at::Tensor sums_;  // [sum of differences, elements]
};

struct Bias {
  static void describe(Fields<Bias>&) {}
  std::unique_ptr<trainrun::Metric> build(const trainrun::MetricInputs&) const {
    return std::make_unique<BiasMetric>();
  }
};

// --- dataset: points of a line ---

struct Line {
  int64_t num_samples = 0;
  double slope = 1;
  double intercept = 0;

  static void describe(Fields<Line>& f) {
    f.required("num_samples", &Line::num_samples).at_least(1).doc("x is 0, 1, …, num_samples - 1");
    f.optional("slope", &Line::slope).doc("y is slope * x + intercept");
    f.optional("intercept", &Line::intercept).doc("y where x is 0");
  }
  std::unique_ptr<trainrun::Dataset> build(const trainrun::DatasetInputs&) const;
};

class LineDataset : public trainrun::TensorDataset {
 public:
  explicit LineDataset(const Line& options) : options_(options) {}
  trainrun::DatasetInfo info() const override {
    return {{{"x", {1}, at::kFloat, std::nullopt}, {"y", {1}, at::kFloat, std::nullopt}}, "y", options_.num_samples};
  }
  void open() override {
    const at::Tensor x = at::arange(options_.num_samples, at::kFloat).unsqueeze(1);  // [n, 1]
    set_field("x", x);
    set_field("y", x * options_.slope + options_.intercept);
  }

 private:
  Line options_;
};

std::unique_ptr<trainrun::Dataset> Line::build(const trainrun::DatasetInputs&) const {
  return std::make_unique<LineDataset>(*this);
}

// --- transform: adds a number to a field ---

struct Shift {
  double by = 0;
  std::string field = "x";

  static void describe(Fields<Shift>& f) {
    f.required("by", &Shift::by).doc("what is added");
    f.optional("field", &Shift::field).doc("to this field of the batch");
  }
  std::unique_ptr<trainrun::Transform> build(const trainrun::TransformInputs&) const;
};

class ShiftTransform : public trainrun::Transform {
 public:
  explicit ShiftTransform(Shift options) : options_(std::move(options)) {}
  void describe(trainrun::DatasetInfo& info) const override {
    if (!info.find(options_.field)) throw trainrun::LayerError("Shift: there is no field '" + options_.field + "'");
  }
  void apply(trainrun::Batch& batch, const trainrun::SampleDraws&) const override {
    batch.set(options_.field, batch.at(options_.field) + options_.by);
  }

 private:
  Shift options_;
};

std::unique_ptr<trainrun::Transform> Shift::build(const trainrun::TransformInputs&) const {
  return std::make_unique<ShiftTransform>(*this);
}

// --- optimizer: a step of `lr` against the gradient's sign; its state is the sum of the signs ---

struct SignDescent {
  double lr = 1e-3;
  bool maximize = false;

  static void describe(Fields<SignDescent>& f) {
    f.optional("lr", &SignDescent::lr).at_least(0).doc("how far each step goes");
    f.optional("maximize", &SignDescent::maximize).doc("maximize the loss instead of minimizing it");
  }
  std::unique_ptr<trainrun::Optimizer> build(const trainrun::OptimizerInputs& inputs) const;
};

class SignDescentOptimizer : public trainrun::Optimizer {
 public:
  explicit SignDescentOptimizer(const trainrun::OptimizerInputs& inputs) : inputs_(inputs) {
    for (size_t i = 0; i < inputs_.groups.size(); ++i) {
      add_group(inputs_.groups[i].rates(inputs_.options<SignDescent>(i).lr, std::nullopt));
      for (const at::Tensor& parameter : inputs_.groups[i].tensors) {
        sign_sums_.push_back(at::zeros_like(parameter).detach());
      }
    }
  }

  void step(const trainrun::StepContext& context) override {
    const at::NoGradGuard no_gradients;
    size_t next = 0;
    for (size_t i = 0; i < inputs_.groups.size(); ++i) {
      const double direction = inputs_.options<SignDescent>(i).maximize ? 1 : -1;
      for (const at::Tensor& parameter : inputs_.groups[i].tensors) {
        const at::Tensor& sign_sum = sign_sums_[next++];
        if (!parameter.grad().defined()) continue;
        const at::Tensor sign = parameter.grad().sign();
        sign_sum.add_(sign);
        parameter.add_(sign, direction * context.rates[i].lr);
      }
    }
  }

  trainrun::NamedTensors state() override {
    trainrun::NamedTensors state;
    for (const trainrun::ParameterGroup& group : inputs_.groups) {
      for (const std::string& name : group.names) state.emplace_back(name + ".sign_sum", sign_sums_[state.size()]);
    }
    return state;
  }

 private:
  trainrun::OptimizerInputs inputs_;
  Tensors sign_sums_;  // one a parameter, in the order of the groups
};

std::unique_ptr<trainrun::Optimizer> SignDescent::build(const trainrun::OptimizerInputs& inputs) const {
  return std::make_unique<SignDescentOptimizer>(inputs);
}

// --- scheduler: half the rate, every few steps ---

struct Halving {
  int64_t every = 1;

  static void describe(Fields<Halving>& f) {
    f.optional("every", &Halving::every).at_least(1).doc("the rate is halved after so many");
  }
  std::unique_ptr<trainrun::Scheduler> build(const trainrun::SchedulerInputs& inputs) const;
};

class HalvingScheduler : public trainrun::Scheduler {
 public:
  HalvingScheduler(const Halving& options, std::vector<trainrun::GroupRates> base)
      : every_(options.every), base_(std::move(base)) {}
  void set(int64_t t, std::vector<trainrun::GroupRates>& rates) override {
    for (size_t i = 0; i < rates.size(); ++i) rates[i].lr = std::ldexp(base_[i].lr, -static_cast<int>(t / every_));
  }

 private:
  int64_t every_;
  std::vector<trainrun::GroupRates> base_;
};

std::unique_ptr<trainrun::Scheduler> Halving::build(const trainrun::SchedulerInputs& inputs) const {
  return std::make_unique<HalvingScheduler>(*this, inputs.base);
}

// --- logger: a line for everything it is told ---

class HistoryLogger : public trainrun::Logger {
 public:
  explicit HistoryLogger(const std::string& path) : file_(path, std::ios::app) {
    if (!file_) throw trainrun::Error("cannot write " + path);
  }
  void on_start(const trainrun::RunInfo& info) override { file_ << "start " << info.name << '\n'; }
  void on_progress(int64_t step, double) override { file_ << "progress " << step << '\n'; }
  void on_step(const trainrun::StepRecord& record) override {
    file_ << "step " << record.step << " lr " << record.lr << '\n';
  }
  void on_evaluation(const trainrun::EvaluationRecord& record) override {
    file_ << "evaluation";
    for (const auto& [name, figure] : record.metrics) file_ << ' ' << name;
    file_ << '\n';
  }
  void on_checkpoint(const trainrun::CheckpointRecord& record) override {
    file_ << "checkpoint " << record.path.substr(record.path.rfind('/') + 1) << '\n';
  }
  void on_end(const trainrun::EndRecord& record) override { file_ << "end " << record.step << '\n'; }

 private:
  std::ofstream file_;
};

struct History {
  std::string file = "history.txt";

  static void describe(Fields<History>& f) { f.optional("file", &History::file).doc("its name in the run's folder"); }
  std::unique_ptr<trainrun::Logger> build(const trainrun::LoggerInputs& inputs) const {
    return std::make_unique<HistoryLogger>(inputs.output_dir + "/" + file);
  }
};

// --- a logger that throws, or hangs until somebody writes to a pipe ---

class TroubledLogger : public trainrun::Logger {
 public:
  explicit TroubledLogger(std::string pipe) : pipe_(std::move(pipe)) {}
  void on_step(const trainrun::StepRecord& record) override {
    if (pipe_.empty()) throw trainrun::Error("no step is good enough, nor is step " + std::to_string(record.step));
    std::ifstream(pipe_).get();
  }

 private:
  std::string pipe_;
};

struct Troubled {
  std::string pipe;

  static void describe(Fields<Troubled>& f) {
    f.optional("pipe", &Troubled::pipe).doc("what it reads a byte of at each step; \"\": it throws instead");
  }
  std::unique_ptr<trainrun::Logger> build(const trainrun::LoggerInputs&) const {
    return std::make_unique<TroubledLogger>(pipe);
  }
};

/// Sums one gradient after the other, and multiplies the mean.
struct ScaledMean {
  double by = 1;

  static void describe(Fields<ScaledMean>& f) {
    f.optional("by", &ScaledMean::by).doc("what the mean is multiplied by");
  }
  std::unique_ptr<trainrun::CommHook> build(const trainrun::CommHookInputs& inputs) const;
};

class ScaledMeanHook : public trainrun::CommHook {
 public:
  explicit ScaledMeanHook(double factor) : factor_(factor) {}
  trainrun::FutureTensor reduce(const trainrun::GradientBucket& bucket, trainrun::Communicator& ranks) override {
    for (const at::Tensor& gradient : bucket.gradients) ranks.sum(gradient.mul_(factor_));
    return trainrun::finished(bucket.values);
  }

 private:
  double factor_;
};

// --- fusion: two gains in a row are computed as one layer ---

at::Tensor gain_of(const trainrun::GraphNode& node) { return *node.layer.state->named_parameters().find("gain"); }

std::shared_ptr<const trainrun::Operation> fuse_gains(const trainrun::FusedLayers& layers) {
  return trainrun::operation_of([first = gain_of(layers["0"]), second = gain_of(layers["1"])](
                                    const Tensors& inputs) -> Tensors { return {second * (first * inputs[0])}; });
}

std::unique_ptr<trainrun::CommHook> ScaledMean::build(const trainrun::CommHookInputs& inputs) const {
  return std::make_unique<ScaledMeanHook>(by / static_cast<double>(inputs.world_size));
}

// --- callback: evaluates outputs that are `add` too large, and says farewell after some evaluations ---

struct Farewell {
  double add = 0;
  int64_t after = 2;

  static void describe(Fields<Farewell>& f) {
    f.optional("add", &Farewell::add).doc("to every output, in evaluations");
    f.optional("after", &Farewell::after).at_least(1).doc("so many evaluations training ends").unit("evaluations");
  }
  std::unique_ptr<trainrun::Callback> build(const trainrun::CallbackInputs&) const;
};

class Adder : public trainrun::Scope, public trainrun::Predictor {
 public:
  explicit Adder(double add) : add_(add) {}
  trainrun::Predictor* predictor() override { return this; }
  Tensors predict(const trainrun::Batch& batch, const Forward& forward) override { return {forward(batch)[0] + add_}; }

 private:
  double add_;
};

class FarewellCallback : public trainrun::Callback {
 public:
  explicit FarewellCallback(const Farewell& options) : options_(options) {}
  void after_step(trainrun::Run& run, const trainrun::StepResult& result) override {
    steps_.fill_(run.step());
    losses_ += result.loss;
  }
  std::unique_ptr<trainrun::Scope> around_evaluation(trainrun::Run&) override {
    return std::make_unique<Adder>(options_.add);
  }
  trainrun::Verdict after_evaluation(trainrun::Run&, const trainrun::Figures&) override {
    return {false, ++evaluations_ == options_.after ? "farewell" : ""};
  }
  void save(trainrun::Run&, trainrun::Snapshot& snapshot) const override {
    snapshot.tensors = {{"steps", steps_}, {"losses", losses_}};
    snapshot.values = evaluations_;
  }
  void load(trainrun::Run&, const trainrun::Snapshot& snapshot) override {
    for (const auto& [name, tensor] : snapshot.tensors) (name == "steps" ? steps_ : losses_).copy_(tensor);
    evaluations_ = snapshot.values.get<int64_t>();
  }

 private:
  Farewell options_;
  at::Tensor steps_ = at::zeros({}, at::kLong);
  at::Tensor losses_ = at::zeros({}, at::kDouble);
  int64_t evaluations_ = 0;
};

std::unique_ptr<trainrun::Callback> Farewell::build(const trainrun::CallbackInputs&) const {
  return std::make_unique<FarewellCallback>(*this);
}

// --- adapter: adds a learned number to what a layer gives ---

class Shifted : public trainrun::Operation {
 public:
  Shifted(std::shared_ptr<const trainrun::Operation> base, at::Tensor offset)
      : base_(std::move(base)), offset_(std::move(offset)) {}
  Tensors run(const Tensors& inputs) const override { return {base_->run(inputs)[0] + offset_}; }

 private:
  std::shared_ptr<const trainrun::Operation> base_;
  at::Tensor offset_;
};

struct Offset {
  static void describe(trainrun::Fields<Offset>&) {}
  trainrun::Adapter build(const trainrun::AdapterInputs& in) const {
    const at::Tensor offset = at::zeros({1});
    trainrun::Adapter adapter;
    adapter.parameters = {{"offset", offset}};
    adapter.operation = std::make_shared<Shifted>(in.operation, offset);
    adapter.merged = [] { return trainrun::NamedTensors(); };
    return adapter;
  }
};

}  // namespace

TRAINRUN_PLUGIN(catalog) {
  catalog.adapters.add<Offset>("Offset", "adds a learned number to what a layer gives");
  catalog.layers.add<Gain>("Gain", "each feature times a learned number");
  catalog.losses.add<HalfSquaredError>("HalfSquaredError", "half the mean of the squared differences");
  catalog.metrics.add<Bias>("Bias", "mean of output minus target");
  catalog.datasets.add<Line>("Line", "points of a straight line");
  catalog.transforms.add<Shift>("Shift", "adds a number to a field");
  catalog.optimizers.add<SignDescent>("SignDescent", "steps of one length against the gradient's sign");
  catalog.schedulers.add<Halving>("Halving", "half the rate, every few steps");
  catalog.comm_hooks.add<ScaledMean>("ScaledMean", "a mean over ranks, times a number");
  catalog.callbacks.add<Farewell>("Farewell", "ends training after some evaluations of outputs that are too large");
  catalog.loggers.add<History>("history", "a line for everything that happens, in history.txt");
  catalog.fusions.add({"TwoGains", "two gains in a row", trainrun::FusionPattern::chain({"Gain", "Gain"}), fuse_gains});
  catalog.loggers.add<Troubled>("Troubled", "throws or hangs");
}
