// One class of each sample: its name and probability, and those of the others.
#include <ATen/TensorOperators.h>
#include <ATen/ops/argmax.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/topk.h>

#include <algorithm>

#include "runner/predict/outcome.h"

namespace trainrun {
namespace {

using Scores = LossFacts::Scores;

bool is_one(const at::Tensor& output) { return output.dim() == 1 || (output.dim() == 2 && output.size(1) == 1); }

/// [N, C] float64; of one output, which says how probable class 1 is, come two.
at::Tensor class_probabilities(const LossFacts& loss, const at::Tensor& output) {
  if (is_one(output) && loss.of_one != Scores::kNone) {
    const at::Tensor one = probabilities_of(loss.of_one, output, [](const auto& x) { return at::sigmoid(x); });
    return at::cat({1 - one.reshape({-1, 1}), one.reshape({-1, 1})}, 1);
  }
  return probabilities_of(loss.of_classes, output, [](const auto& x) { return at::softmax(x, 1); });
}

class ClassOutcome : public Outcome {
 public:
  ClassOutcome(const OutcomeInputs& inputs, int64_t count) : loss_(inputs.loss), top_k_(inputs.options.top_k) {
    const bool has_names = inputs.target && !inputs.target->class_names.empty();
    if (has_names) names_ = names_of_classes(*inputs.target, count);
    title_ = inputs.target && !inputs.target->called.empty() ? inputs.target->called : "label";
    for (int64_t i = 0; !has_names && i < count; ++i) names_.push_back(std::to_string(i));
    if (top_k_) *top_k_ = std::min(*top_k_, count);
  }

  ResultColumns columns(const PredictedBatch& batch) override {
    const at::Tensor all = class_probabilities(loss_, batch.outputs.at(0));
    if (top_k_) return best(all);
    const at::Tensor labels = all.argmax(1);
    ResultColumns columns;
    columns.push_back({{title_, names_of(labels)}});
    columns.push_back({{"probability", all.gather(1, labels.unsqueeze(1)).squeeze(1)}});
    for (size_t i = 0; i < names_.size(); ++i) {
      columns.push_back({{"p(" + names_[i] + ")", all.select(1, static_cast<int64_t>(i))}, "probabilities", names_[i]});
    }
    return columns;
  }
  bool uses_top_k() const override { return true; }

 private:
  /// The most probable classes: "label", "probability", "label 2", …
  ResultColumns best(const at::Tensor& all) const {
    const auto [probabilities, labels] = at::topk(all, *top_k_, 1);
    ResultColumns columns;
    for (int64_t i = 0; i < *top_k_; ++i) {
      const std::string mark = i == 0 ? "" : " " + std::to_string(i + 1);
      columns.push_back({{title_ + mark, names_of(labels.select(1, i))}});
      columns.push_back({{"probability" + mark, probabilities.select(1, i)}});
    }
    return columns;
  }
  std::vector<std::string> names_of(const at::Tensor& labels) const {
    std::vector<std::string> names;
    const at::Tensor list = labels.contiguous();
    for (int64_t i = 0; i < list.numel(); ++i) {
      names.push_back(names_[static_cast<size_t>(list.const_data_ptr<int64_t>()[i])]);
    }
    return names;
  }

  LossFacts loss_;
  std::optional<int64_t> top_k_;
  std::string title_;
  std::vector<std::string> names_;  // or numbers in their place
};

}  // namespace

std::unique_ptr<Outcome> make_class_outcome(const OutcomeInputs& inputs) {
  const at::Tensor& output = inputs.output();
  if (is_one(output) && inputs.loss.of_one != Scores::kNone) return std::make_unique<ClassOutcome>(inputs, 2);
  if (output.dim() != 2 || inputs.loss.of_classes == Scores::kNone) return nullptr;
  return std::make_unique<ClassOutcome>(inputs, output.size(1));
}

}  // namespace trainrun
