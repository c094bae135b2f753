#include <ATen/ops/cross_entropy_loss.h>
#include <torch/nn/module.h>
#include <torch/types.h>

#include "registry/loss.h"

namespace trainrun {
namespace {

struct CrossEntropyLoss {
  std::optional<std::vector<double>> weight;
  int64_t ignore_index = -100;
  std::string reduction = "mean";
  double label_smoothing = 0;
  static void describe(Fields<CrossEntropyLoss>& f) {
    f.optional("weight", &CrossEntropyLoss::weight).at_least(0).doc("a weight for each class");
    f.optional("ignore_index", &CrossEntropyLoss::ignore_index).doc("targets of this value do not count");
    f.optional("reduction", &CrossEntropyLoss::reduction).one_of({"mean", "sum"}).doc("over the samples");
    f.optional("label_smoothing", &CrossEntropyLoss::label_smoothing)
        .at_least(0)
        .at_most(1)
        .doc("share of the target that is spread over all classes");
  }
  Loss build(const LayerInputs& in) const {
    in.require_inputs(2, 2);
    const auto state = std::make_shared<torch::nn::Module>();
    at::Tensor class_weight;
    if (weight) {
      if (in.shape(0).size() < 2 || static_cast<int64_t>(weight->size()) != in.shape(0)[1]) {
        throw LayerError("weight has " + std::to_string(weight->size()) + " classes, the output is " +
                         shape_text(in.shape(0)));
      }
      class_weight = state->register_buffer("weight", torch::tensor(*weight, at::kFloat));
    }
    const auto classes = in.num_classes.size() == 2 ? in.num_classes[1] : std::nullopt;
    if (classes && in.shape(0).size() > 1 && in.shape(0)[1] < *classes) {
      throw LayerError("the output has " + std::to_string(in.shape(0)[1]) + " classes, the labels " +
                       std::to_string(*classes));
    }
    std::vector<int64_t> labels = in.shape(0).vec();  // [N, …]
    if (labels.size() > 1) labels.erase(labels.begin() + 1);
    if (in.examples[1].scalar_type() == at::kLong && in.shape(1) != at::IntArrayRef(labels)) {
      throw LayerError("an output " + shape_text(in.shape(0)) + " needs labels " + shape_text(labels) +
                       "; is a Flatten, or a pooling, missing before the last layer?");
    }
    const auto kind = reduction == "mean" ? at::Reduction::Mean : at::Reduction::Sum;
    return {state, [class_weight, kind, ignore = ignore_index, smoothing = label_smoothing](const Tensors& inputs) {
              return at::cross_entropy_loss(inputs[0], inputs[1], class_weight, kind, ignore, smoothing);
            }};
  }
};

}  // namespace

void add_classification_losses(LossRegistry& losses) {
  losses.add<CrossEntropyLoss>("CrossEntropyLoss",
                               "of logits [N, C, …] against class indices [N, …] (int64) or probabilities [N, C, …]");
}

}  // namespace trainrun
