#include "registry/metrics/class_scores.h"

#include <ATen/TensorOperators.h>

namespace trainrun {
namespace {

std::vector<int64_t> without_dim_1(at::IntArrayRef sizes) {
  std::vector<int64_t> rest = sizes.vec();
  if (rest.size() > 1) rest.erase(rest.begin() + 1);
  return rest;
}

}  // namespace

ClassScores::ClassScores(const LayerInputs& in, int64_t ignore_index) : ignore_index_(ignore_index) {
  in.require_inputs(2, 2);
  const at::IntArrayRef output = in.shape(0);
  const at::IntArrayRef labels = in.shape(1);
  const std::vector<int64_t> rest = without_dim_1(output);
  const bool has_class_dim = output.size() > 1 && labels == at::IntArrayRef(rest);
  is_binary_ = output == labels || (has_class_dim && output[1] == 1);
  if (!is_binary_ && !has_class_dim) {
    throw LayerError("it compares logits [N, C, …] with class indices [N, …], or one logit a label with labels, not " +
                     shape_text(output) + " and " + shape_text(labels));
  }
  if (!is_binary_) num_classes_ = output[1];
  const auto known = in.num_classes.size() > 1 ? in.num_classes[1] : std::nullopt;
  if (known && num_classes_ < *known) {
    throw LayerError("the output has " + std::to_string(num_classes_) + " classes, but the labels have " +
                     std::to_string(*known));
  }
}

ClassScores::Rows ClassScores::read(const Tensors& inputs) const {
  const at::Tensor labels = inputs[1].flatten().to(at::kLong);
  TORCH_CHECK((is_binary_ ? inputs[0].numel() : inputs[0].numel() / inputs[0].size(1)) == labels.numel(),
              "it compares logits [N, C, …] with class indices [N, …], not ", shape_text(inputs[0].sizes()), " and ",
              shape_text(inputs[1].sizes()));
  const at::Tensor scores = is_binary_ ? inputs[0].flatten() : inputs[0].movedim(1, -1).flatten(0, -2);
  if (labels.is_meta()) return {scores, labels};
  const at::Tensor counted = (labels != ignore_index_).nonzero().squeeze(1);
  const Rows rows = {scores.index_select(0, counted), labels.index_select(0, counted)};
  const at::Tensor wrong = rows.labels.lt(0).logical_or(rows.labels.ge(num_classes_));
  if (wrong.any().item<bool>()) {
    throw Error("a label is " + std::to_string(rows.labels.index_select(0, wrong.nonzero()[0]).item<int64_t>()) +
                ", the classes are 0 to " + std::to_string(num_classes_ - 1));
  }
  return rows;
}

at::Tensor ClassScores::predicted(const Rows& rows, double threshold) {
  return rows.scores.dim() == 1 ? rows.scores.gt(threshold).to(at::kLong) : rows.scores.argmax(1);
}

at::Tensor ClassScores::probabilities(const Rows& rows, bool from_logits) {
  at::Tensor scores = rows.scores.to(at::kDouble);
  if (!from_logits) return scores;
  return scores.dim() == 1 ? scores.sigmoid() : scores.softmax(1);
}

}  // namespace trainrun
