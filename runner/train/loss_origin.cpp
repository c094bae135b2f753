#include "runner/train/loss_origin.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>

#include "registry/language/text_forms.h"

namespace trainrun {
namespace {

bool may_be_not_finite(const at::Tensor& tensor) {
  return tensor.defined() && tensor.numel() > 0 && tensor.is_floating_point();
}

int64_t count_not_finite(const at::Tensor& tensor) {
  if (!may_be_not_finite(tensor)) return 0;
  return tensor.numel() - tensor.isfinite().sum().item<int64_t>();
}

std::string count_text(const at::Tensor& tensor) {
  return std::to_string(count_not_finite(tensor)) + " of " + counted(tensor.numel(), "number", "numbers");
}

/// "between -3.2 and 1.1e+38"; of what is finite.
std::string range_of(const at::Tensor& tensor) {
  constexpr int kShown = 4;
  const at::Tensor numbers = tensor.detach().to(at::kDouble).flatten();
  const at::Tensor finite = numbers.masked_select(numbers.isfinite());
  if (finite.numel() == 0) return "nowhere finite";
  return "between " + in_figures(finite.min().item<double>(), kShown) + " and " +
         in_figures(finite.max().item<double>(), kShown);
}

/// The first layer whose output is not finite, and what went into it.
struct BadLayer {
  std::string name;  // in the state dict
  std::string text;
};

/// Runs another operation and looks at what it gives.
class CheckedOperation : public Operation {
 public:
  CheckedOperation(const PlanStep& step, std::shared_ptr<std::optional<BadLayer>> found)
      : operation_(step.operation), layer_(step.layer), type_(step.type), name_(step.name), found_(std::move(found)) {}

  Traits traits() const override { return operation_->traits(); }

  Tensors run(const Tensors& inputs) const override {
    if (*found_) return operation_->run(inputs);
    const std::string input = inputs.empty() || !may_be_not_finite(inputs[0]) ? "" : range_of(inputs[0]);
    Tensors outputs = operation_->run(inputs);
    for (const at::Tensor& output : outputs) {
      if (count_not_finite(output) == 0) continue;
      *found_ = BadLayer{layer_, "the output of " + name_.path + " (" + type_ + ") is the first that is not finite, " +
                                     count_text(output) + (input.empty() ? "" : "; its input lies " + input)};
      break;
    }
    return outputs;
  }

 private:
  std::shared_ptr<const Operation> operation_;
  std::string layer_, type_;
  ComponentName name_;
  std::shared_ptr<std::optional<BadLayer>> found_;
};

std::string bad_field(const Batch& batch) {
  for (const Batch::Field& field : batch.fields()) {
    if (count_not_finite(field.tensor) == 0) continue;
    const at::Tensor rows = field.tensor.isfinite().logical_not().flatten(1).any(1);
    return "the batch's " + field.name + " is not finite, " + count_text(field.tensor) + ", first in sample " +
           std::to_string(rows.to(at::kLong).argmax().item<int64_t>() + 1) + " of " + std::to_string(batch.size());
  }
  return "";
}

std::string bad_weight(const Job& job) {
  for (const auto& [name, tensor] : job.parallel->parameters()) {
    if (count_not_finite(tensor) > 0) return name + " was not finite before the step, " + count_text(tensor);
  }
  return "";
}

/// ", 3.weight between -0.1 and 0.1"
std::string weights_text(const Job& job, const std::string& layer) {
  std::string text;
  for (const auto& [name, tensor] : job.parallel->parameters()) {
    if (name.substr(0, name.rfind('.')) == layer) text += ", " + name + " " + range_of(tensor);
  }
  return text;
}

std::string loss_text(const Job& job, const Batch& batch, const Tensors& outputs) {
  std::string text = "every layer's output is finite, and the loss of them is not";
  for (size_t i = 0; i < job.recipe.loss.size(); ++i) {
    const Tensors inputs = job.model->loss_inputs(i, batch, outputs);
    if (inputs.empty() || !may_be_not_finite(inputs[0])) continue;
    text += "; " + job.recipe.loss[i].type + " gets outputs " + range_of(inputs[0]);
    if (inputs.size() > 1 && inputs[1].defined()) text += " and targets " + range_of(inputs[1]);
  }
  return text;
}

bool needs_other_ranks(const Job& job) {
  if (job.group->is_alone()) return false;
  if (job.parallel->is_sharded()) return true;
  return std::ranges::any_of(job.model->plan().steps,
                             [](const PlanStep& step) { return step.operation->traits().spans_ranks; });
}

}  // namespace

LossOrigin origin_of_loss(Job& job, const Batch& batch) {
  if (needs_other_ranks(job)) return {};
  const at::NoGradGuard no_gradients;
  if (const std::string weight = bad_weight(job); !weight.empty()) return {weight, true};
  if (const std::string field = bad_field(batch); !field.empty()) return {field, false};
  const auto found = std::make_shared<std::optional<BadLayer>>();
  job.model->set_measure([found](const PlanStep& step) -> std::shared_ptr<const Operation> {
    if (!step.computes) return nullptr;
    return std::make_shared<CheckedOperation>(step, found);
  });
  const Tensors outputs = job.model->forward(batch);
  job.model->set_measure(nullptr);
  if (*found) return {(*found)->text + weights_text(job, (*found)->name), false};
  if (std::isfinite(job.model->loss(batch, outputs).value().item<double>())) {
    return {"made once more, the pass gives a finite loss; what it draws, such as dropout, comes out differently then",
            false};
  }
  return {loss_text(job, batch, outputs), false};
}

}  // namespace trainrun
