#include "runner/replay/step_recorder.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <limits>
#include <set>
#include <utility>

namespace trainrun {
namespace {

using Kind = RecordedItem::Kind;

}  // namespace

/// What a step of the plan, the callbacks and the optimizer's end report to.
class StepRecorder::Recording {
 public:
  Recording(Job& job, Keep keep) : job_(job), keep_(keep) {}

  void arm() { is_armed_ = true; }

  void begin_batch(const Batch& batch) {
    if (!is_armed_) return;
    if (!is_recording_) begin();
    ++batch_;
    for (const Batch::Field& field : batch.fields()) add(Kind::kField, field.name, "", field.tensor);
  }

  void add_outputs(const std::string& layer, const std::string& type, const Tensors& inputs, const Tensors& outputs) {
    if (!is_recording_) return;
    for (const at::Tensor& output : outputs) {
      if (!output.defined()) continue;
      add(Kind::kOutput, layer, type, output);
      if (step_.items.back().figures.not_finite > 0 && !inputs.empty()) step_.items.back().input = copied(inputs[0]);
    }
  }

  void add_output_gradient(const std::string& layer, const std::string& type, const at::Tensor& gradient) {
    if (is_recording_) add(Kind::kOutputGradient, layer, type, gradient);
  }

  void add_gradients() {
    if (!is_recording_) return;
    const NamedTensors parameters = job_.parallel->parameters();
    for (auto named = parameters.rbegin(); named != parameters.rend(); ++named) {
      if (named->second.grad().defined()) add(Kind::kGradient, named->first, "", named->second.grad());
    }
  }

  RecordedStep take(const StepOutcome& outcome) {
    const at::NoGradGuard no_gradients;
    step_.loss = outcome.figures.loss.item<double>();
    if (outcome.figures.grad_norm.defined()) step_.grad_norm = outcome.figures.grad_norm.item<double>();
    for (const GroupRates& group : job_.rates) step_.rates.push_back(group.lr);
    insert_loss(outcome.figures.loss);
    add(Kind::kRates, "", "", at::tensor(step_.rates, at::kDouble));
    add_state(Kind::kNewParameter, Kind::kNewBuffer, Kind::kNewOptimizerState);
    return take_as_it_is();
  }

  RecordedStep take_as_it_is() {
    is_recording_ = is_armed_ = false;
    return std::move(step_);
  }

 private:
  void begin() {
    is_recording_ = true;
    step_ = RecordedStep();
    step_.step = job_.progress.step + 1;
    step_.epoch = job_.progress.epoch;
    step_.first_batch = job_.progress.batch;
    batch_ = -1;
    add_state(Kind::kParameter, Kind::kBuffer, Kind::kOptimizerState);
    const int64_t full = job_.train_loader->full_batch_size();
    const int64_t last = std::min(step_.first_batch + job_.recipe.training.gradient_accumulation_steps,
                                  job_.train_loader->num_batches());
    int64_t count = 0;
    for (int64_t batch = step_.first_batch; batch < last; ++batch) count += job_.train_loader->batch_size(batch);
    const at::Tensor numbers =
        job_.train_loader->order(step_.epoch).narrow(0, step_.first_batch * full, count).to(at::kLong).contiguous();
    const auto* first = numbers.const_data_ptr<int64_t>();
    step_.samples.assign(first, first + numbers.numel());
    add(Kind::kSamples, "", "", numbers);
  }

  void add_state(Kind parameter, Kind buffer, Kind optimizer) {
    std::set<std::string> parameters;
    for (const auto& [name, tensor] : job_.parallel->parameters()) {
      parameters.insert(name);
      add(parameter, name, "", tensor);
    }
    for (const auto& [name, tensor] : job_.model->state_dict()) {
      if (!parameters.contains(name)) add(buffer, name, "", tensor);
    }
    for (const auto& [name, tensor] : job_.optimizer->state()) add(optimizer, name, "", tensor);
  }

  void insert_loss(const at::Tensor& loss) {
    RecordedItem item{Kind::kLoss, "", "", 0, figures_of(loss), copied(loss)};
    const auto is_backward = [](const RecordedItem& one) {
      return one.kind == Kind::kOutputGradient || one.kind == Kind::kGradient;
    };
    step_.items.insert(std::ranges::find_if(step_.items, is_backward), std::move(item));
  }

  void add(Kind kind, const std::string& name, const std::string& type, const at::Tensor& tensor) {
    if (!tensor.defined()) return;
    const bool is_small = kind == Kind::kParameter;  // for what the step changes of it
    RecordedItem item{kind, name, type, std::max<int64_t>(batch_, 0), figures_of(tensor), {}};
    if (keep_ == Keep::kValues || is_small || kind == Kind::kNewParameter) item.value = copied(tensor);
    step_.items.push_back(std::move(item));
  }

  static at::Tensor copied(const at::Tensor& tensor) {
    const at::NoGradGuard no_gradients;
    return tensor.detach().to(at::kCPU, tensor.scalar_type(), /*non_blocking=*/false, /*copy=*/true);
  }

  Job& job_;
  Keep keep_;
  bool is_armed_ = false;
  bool is_recording_ = false;
  int64_t batch_ = -1;
  RecordedStep step_;
};

namespace {

/// A step of the plan, whose outputs and their gradients are told to a recording.
template <class Recording>
class RecordedOperation : public Operation {
 public:
  RecordedOperation(const PlanStep& step, std::shared_ptr<Recording> recording)
      : operation_(step.operation), layer_(step.layer), type_(step.type), recording_(std::move(recording)) {}

  Traits traits() const override { return operation_->traits(); }

  Tensors run(const Tensors& inputs) const override {
    std::vector<const torch::autograd::Node*> makers;
    for (const at::Tensor& input : inputs) makers.push_back(maker_of(input));
    Tensors outputs = operation_->run(inputs);
    recording_->add_outputs(layer_, type_, inputs, outputs);
    if (!c10::GradMode::is_enabled()) return outputs;
    for (const at::Tensor& output : outputs) {
      const auto* maker = maker_of(output);
      const bool is_passed_on = std::find(makers.begin(), makers.end(), maker) != makers.end();
      if (!maker || is_passed_on) continue;
      output.register_hook([recording = recording_, layer = layer_, type = type_](const at::Tensor& gradient) {
        recording->add_output_gradient(layer, type, gradient);
      });
    }
    return outputs;
  }

 private:
  static const torch::autograd::Node* maker_of(const at::Tensor& tensor) {
    return tensor.defined() && tensor.requires_grad() ? tensor.grad_fn().get() : nullptr;
  }

  std::shared_ptr<const Operation> operation_;
  std::string layer_, type_;
  std::shared_ptr<Recording> recording_;
};

/// At the points where callbacks are called.
template <class Recording>
class RecordingCallback : public Callback {
 public:
  explicit RecordingCallback(std::shared_ptr<Recording> recording) : recording_(std::move(recording)) {}
  void before_forward(Run&, Batch& batch) override { recording_->begin_batch(batch); }
  void before_update(Run&, bool) override { recording_->add_gradients(); }

 private:
  std::shared_ptr<Recording> recording_;
};

std::string layer_text(const RecordedItem& item) {
  return item.name.empty() ? item.type : item.name + " (" + item.type + ")";
}

}  // namespace

StepRecorder::StepRecorder(Job& job, Keep keep) : recording_(std::make_shared<Recording>(job, keep)) {
  job.callbacks->add_own({{}, "replay", "replay"}, std::make_unique<RecordingCallback<Recording>>(recording_));
  job.model->set_measure([recording = recording_](const PlanStep& step) -> std::shared_ptr<const Operation> {
    if (!step.computes) return nullptr;
    return std::make_shared<RecordedOperation<Recording>>(step, recording);
  });
}

StepRecorder::~StepRecorder() = default;

void StepRecorder::arm() { recording_->arm(); }

RecordedStep StepRecorder::take(const StepOutcome& outcome) { return recording_->take(outcome); }

RecordedStep StepRecorder::take_unfinished() {
  RecordedStep step = recording_->take_as_it_is();
  step.loss = std::numeric_limits<double>::quiet_NaN();
  return step;
}

std::string RecordedItem::to_string() const {
  switch (kind) {
    case Kind::kParameter:
      return "parameter " + name + " before the step";
    case Kind::kBuffer:
      return "buffer " + name + " before the step";
    case Kind::kOptimizerState:
      return "the optimizer's state " + name + " before the step";
    case Kind::kSamples:
      return "the choice of samples";
    case Kind::kField:
      return "the batch's " + name;
    case Kind::kOutput:
      return "the output of " + layer_text(*this);
    case Kind::kLoss:
      return "the loss";
    case Kind::kOutputGradient:
      return "the gradient of the output of " + layer_text(*this);
    case Kind::kGradient:
      return "the gradient of " + name;
    case Kind::kRates:
      return "the learning rate";
    case Kind::kNewParameter:
      return "parameter " + name + " after the step";
    case Kind::kNewBuffer:
      return "buffer " + name + " after the step";
    case Kind::kNewOptimizerState:
      return "the optimizer's state " + name + " after the step";
  }
  return name;
}

const RecordedItem* RecordedStep::find(Kind kind, const std::string& name) const {
  const auto found =
      std::ranges::find_if(items, [&](const RecordedItem& item) { return item.kind == kind && item.name == name; });
  return found == items.end() ? nullptr : &*found;
}

const RecordedItem* first_not_finite(const RecordedStep& step) {
  const auto counts =
      [](Kind kind) {  // buffers and an optimizer's state may be infinite for good reasons, as masks are
        return kind != Kind::kBuffer && kind != Kind::kOptimizerState && kind != Kind::kNewBuffer &&
               kind != Kind::kNewOptimizerState;
      };
  const auto found = std::ranges::find_if(
      step.items, [&](const RecordedItem& item) { return counts(item.kind) && item.figures.not_finite > 0; });
  return found == step.items.end() ? nullptr : &*found;
}

}  // namespace trainrun
