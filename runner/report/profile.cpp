#include "runner/report/profile.h"

#include <c10/core/GradMode.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <spdlog/spdlog.h>
#include <sys/resource.h>
#include <torch/csrc/autograd/engine.h>

#include <algorithm>
#include <chrono>

#include "runner/device/device.h"
#include "runner/train/job.h"
#include "runner/train/train_step.h"

namespace trainrun {
namespace {

constexpr int64_t kUncountedSteps = 3;  // the first ones allocate, and start threads

/// Time runs for one account at a time, so that all of it is in one.
class Stopwatch {
 public:
  explicit Stopwatch(at::Device device) : device_(device), guard_(device.type()) {}

  size_t add_account() {
    seconds_.push_back(0);
    return seconds_.size() - 1;
  }
  void run_for(size_t account) {
    const double now = seconds();
    seconds_[current_] += now - since_;
    since_ = now;
    current_ = account;
  }
  size_t current() const { return current_; }
  double of(size_t account) const { return seconds_[account]; }
  void reset() {
    std::fill(seconds_.begin(), seconds_.end(), 0);
    since_ = seconds();
  }
  /// By the clock, when all is done that was asked of the device.
  double seconds() const {
    if (!device_.is_cpu()) guard_.synchronizeDevice(device_.index());
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
  }

 private:
  at::Device device_;
  c10::impl::VirtualGuardImpl guard_;
  std::vector<double> seconds_ = std::vector<double>(1);  // the first account is nobody's
  size_t current_ = 0;
  double since_ = 0;
};

/// The accounts of a step.
struct Accounts {
  explicit Accounts(Stopwatch& watch)
      : loss(watch.add_account()),
        optimizing(watch.add_account()),
        data(watch.add_account()),
        rest(watch.add_account()) {}
  size_t loss, optimizing, data, rest;
  struct OfLayer {
    std::string name, type;
    size_t forward, backward;
  };
  std::vector<OfLayer> layers;  // a layer that is computed in several steps (one that is sharded) has several
};

/// A step of the plan, with its time. The backward pass is the layer's from the moment that the gradient of its output
/// is there until that of another layer's is.
class Measured : public Operation {
 public:
  Measured(std::shared_ptr<const Operation> operation, Stopwatch& watch, const Accounts& accounts, size_t forward,
           size_t backward)
      : operation_(std::move(operation)), watch_(watch), accounts_(accounts), forward_(forward), backward_(backward) {}

  Traits traits() const override { return operation_->traits(); }

  Tensors run(const Tensors& inputs) const override {
    watch_.run_for(forward_);
    std::vector<const torch::autograd::Node*> makers;
    for (const at::Tensor& input : inputs) makers.push_back(maker_of(input));
    Tensors outputs = operation_->run(inputs);
    if (c10::GradMode::is_enabled()) {
      for (const at::Tensor& output : outputs) {
        const auto* maker = maker_of(output);
        const bool is_passed_on = std::find(makers.begin(), makers.end(), maker) != makers.end();
        if (maker && !is_passed_on) output.register_hook([this](const at::Tensor&) { begin_backward(); });
      }
    }
    watch_.run_for(accounts_.loss);
    return outputs;
  }

 private:
  static const torch::autograd::Node* maker_of(const at::Tensor& tensor) {
    return tensor.defined() && tensor.requires_grad() ? tensor.grad_fn().get() : nullptr;
  }

  void begin_backward() const {
    if (watch_.current() == accounts_.loss) {  // the first layer of this backward pass
      torch::autograd::Engine::get_default_engine().queue_callback(
          [&watch = watch_, rest = accounts_.rest] { watch.run_for(rest); });
    }
    watch_.run_for(backward_);
  }

  std::shared_ptr<const Operation> operation_;
  Stopwatch& watch_;
  const Accounts& accounts_;
  size_t forward_;
  size_t backward_;
};

/// The batches of another stream, with the time that they are waited for.
class MeasuredStream : public BatchStream {
 public:
  MeasuredStream(std::unique_ptr<BatchStream> stream, Stopwatch& watch, const Accounts& accounts)
      : stream_(std::move(stream)), watch_(watch), accounts_(accounts) {}
  std::optional<Batch> next() override {
    watch_.run_for(accounts_.data);
    auto batch = stream_->next();
    watch_.run_for(accounts_.rest);
    return batch;
  }

 private:
  std::unique_ptr<BatchStream> stream_;
  Stopwatch& watch_;
  const Accounts& accounts_;
};

/// Another optimizer, with its time; that of a pass which it asks for is not its own.
class MeasuredOptimizer : public Optimizer {
 public:
  MeasuredOptimizer(std::unique_ptr<Optimizer> optimizer, Stopwatch& watch, const Accounts& accounts)
      : optimizer_(std::move(optimizer)), watch_(watch), accounts_(accounts) {
    for (const GroupRates& group : optimizer_->initial_rates()) add_group(group);
  }
  void step(const StepContext& context) override {
    StepContext measured = context;
    measured.closure = [&] {
      watch_.run_for(accounts_.rest);
      const at::Tensor loss = context.closure();
      watch_.run_for(accounts_.optimizing);
      return loss;
    };
    watch_.run_for(accounts_.optimizing);
    optimizer_->step(measured);
    watch_.run_for(accounts_.rest);
  }
  NamedTensors state() override { return optimizer_->state(); }
  bool is_elementwise() const override { return optimizer_->is_elementwise(); }
  bool skips_overflow() const override { return optimizer_->skips_overflow(); }
  bool takes_factors() const override { return optimizer_->takes_factors(); }
  void last_step_was_skipped() override { optimizer_->last_step_was_skipped(); }

 private:
  std::unique_ptr<Optimizer> optimizer_;
  Stopwatch& watch_;
  const Accounts& accounts_;
};

/// The pass over the plan that has each layer measured.
void measure_layers(Model& model, Stopwatch& watch, Accounts& accounts) {
  model.set_measure([&](const PlanStep& step) -> std::shared_ptr<const Operation> {
    const Accounts::OfLayer layer = {step.layer, step.type, watch.add_account(), watch.add_account()};
    accounts.layers.push_back(layer);
    return std::make_shared<Measured>(step.operation, watch, accounts, layer.forward, layer.backward);
  });
}

Profile result_of(const LoadedRecipe& loaded, const Job& job, const Stopwatch& watch, const Accounts& accounts) {
  Profile result;
  result.name = loaded.recipe.name;
  result.path = loaded.path;
  result.device = device_name(job.device);
  result.optimizer = loaded.recipe.optimizer.type;
  for (const Accounts::OfLayer& layer : accounts.layers) {
    result.layers.push_back({layer.name, layer.type, watch.of(layer.forward), watch.of(layer.backward)});
  }
  result.loss = watch.of(accounts.loss);
  result.optimizing = watch.of(accounts.optimizing);
  result.data = watch.of(accounts.data);
  result.rest = watch.of(accounts.rest);
  return result;
}

/// Page faults of the process so far that were met without reading from a disk.
double minor_faults() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_minflt);
}

void divide(Profile& profile, double steps) {
  for (LayerTime& layer : profile.layers) {
    layer.forward /= steps;
    layer.backward /= steps;
  }
  for (double* part : {&profile.loss, &profile.optimizing, &profile.data, &profile.rest, &profile.step,
                       &profile.samples, &profile.faults}) {
    *part /= steps;
  }
}

}  // namespace

double Profile::parts() const {
  double sum = loss + optimizing + data + rest;
  for (const LayerTime& layer : layers) sum += layer.forward + layer.backward;
  return sum;
}

Profile profile(const LoadedRecipe& loaded, int64_t steps) {
  spdlog::set_level(spdlog::level::off);
  Job::Options options;
  options.quiet = true;
  options.dry_run = true;
  Job job(loaded, options);
  job.model->train();
  Stopwatch watch(job.device);
  Accounts accounts(watch);
  measure_layers(*job.model, watch, accounts);
  job.optimizer = std::make_unique<MeasuredOptimizer>(std::move(job.optimizer), watch, accounts);
  double step_seconds = 0;
  double samples = 0;
  double faults_before = 0;
  Progress& progress = job.progress;
  for (; progress.step < kUncountedSteps + steps; ++progress.epoch, progress.batch = 0) {
    MeasuredStream batches(job.train_loader->iterate(progress.epoch), watch, accounts);
    while (progress.batch < job.train_loader->num_batches() && progress.step < kUncountedSteps + steps) {
      if (progress.step == kUncountedSteps) {
        watch.reset();
        step_seconds = samples = 0;
        faults_before = minor_faults();
      }
      const int64_t first = progress.batch;
      const double begin = watch.seconds();
      watch.run_for(accounts.rest);
      if (const auto outcome = train_step(job, batches)) job.callbacks->after_step(outcome->figures);
      watch.run_for(0);
      step_seconds += watch.seconds() - begin;
      for (int64_t i = first; i < progress.batch; ++i) samples += static_cast<double>(job.train_loader->batch_size(i));
    }
  }
  Profile result = result_of(loaded, job, watch, accounts);
  result.steps = steps;
  result.step = step_seconds;
  result.samples = samples;
  result.faults = minor_faults() - faults_before;
  divide(result, static_cast<double>(steps));
  return result;
}

}  // namespace trainrun
