#include "registry/components/metrics/class_scores.h"

#include <ATen/TensorOperators.h>

namespace trainrun {
namespace {

/// Throws Error where labels that are numbers of floating point are between two classes.
void require_whole(const at::Tensor& labels) {
  if (!labels.is_floating_point() || labels.is_meta()) return;
  const at::Tensor broken = labels.ne(labels.round()).flatten().nonzero();
  if (broken.numel() == 0) return;
  throw Error("a label is " + detail::number_text(labels.flatten()[broken[0][0].item<int64_t>()].item<double>()) +
              ", which is not a class; are the targets numbers, or probabilities, instead of labels?");
}

/// As an index from 0. An output of fewer dimensions, [N, C], has its classes second, or it has none.
int64_t class_dim_of(at::IntArrayRef output, int64_t class_dim) {
  const auto rank = static_cast<int64_t>(output.size());
  const int64_t dim = rank < 3 ? 1 : class_dim < 0 ? class_dim + rank : class_dim;
  if (dim >= 1 && (dim < rank || rank < 3)) return dim;
  throw LayerError("class_dim is " + std::to_string(class_dim) + ", but the output is " + shape_text(output) +
                   ", whose first dimension is the batch");
}

std::vector<int64_t> without(at::IntArrayRef sizes, int64_t dim) {
  std::vector<int64_t> rest = sizes.vec();
  if (rest.size() > 1) rest.erase(rest.begin() + dim);
  return rest;
}

}  // namespace

ClassScores::ClassScores(const LayerInputs& in, int64_t ignore_index, int64_t class_dim)
    : ignore_index_(ignore_index), class_dim_(1) {
  in.require_inputs(2, 2);
  const at::IntArrayRef output = in.shape(0);
  const at::IntArrayRef labels = in.shape(1);
  class_dim_ = class_dim_of(output, class_dim);
  const std::vector<int64_t> rest = without(output, class_dim_);
  const bool has_class_dim = output.size() > 1 && labels == at::IntArrayRef(rest);
  is_binary_ = output == labels || (has_class_dim && output[static_cast<size_t>(class_dim_)] == 1);
  if (!is_binary_ && !has_class_dim) {
    if (output.size() > 2 && labels == output.slice(0, output.size() - 1)) {
      throw LayerError("the output is " + shape_text(output) + " and the labels " + shape_text(labels) +
                       "; where its last dimension holds the classes, write class_dim: -1");
    }
    throw LayerError("it compares logits [N, C, …] with class indices [N, …], or one logit a label with labels, not " +
                     shape_text(output) + " and " + shape_text(labels));
  }
  const bool may_be_labels = output.size() == 2 || output.size() > 3 || (output.size() == 3 && class_dim != 1);
  if (output == labels && may_be_labels && output[static_cast<size_t>(class_dim_)] > 1) {
    num_labels_ = output[static_cast<size_t>(class_dim_)];
  }
  if (!is_binary_) num_classes_ = output[static_cast<size_t>(class_dim_)];
  const auto known = in.num_classes.size() > 1 ? in.num_classes[1] : std::nullopt;
  if (known && num_classes_ < *known) {
    throw LayerError("the output has " + std::to_string(num_classes_) + " classes, but the labels have " +
                     std::to_string(*known));
  }
}

ClassScores::LabelRows ClassScores::read_labels(const Tensors& inputs) const {
  TORCH_CHECK(inputs[0].sizes() == inputs[1].sizes(), "it compares logits and labels of one shape, not ",
              shape_text(inputs[0].sizes()), " and ", shape_text(inputs[1].sizes()));
  const auto rows = [&](const at::Tensor& tensor) { return tensor.movedim(class_dim_, -1).flatten(0, -2); };
  require_whole(inputs[1]);
  const at::Tensor labels = rows(inputs[1]).to(at::kLong);
  const at::Tensor counted = labels.ne(ignore_index_);
  const at::Tensor known = labels.masked_fill(counted.logical_not(), 0);
  if (!labels.is_meta()) {
    const at::Tensor wrong = known.lt(0).logical_or(known.gt(1));
    if (wrong.any().item<bool>()) {
      throw Error("a label is " + std::to_string(known.masked_select(wrong)[0].item<int64_t>()) +
                  ", but with several labels a sample each is 0 or 1");
    }
  }
  return {rows(inputs[0]), known, counted};
}

ClassScores::Rows ClassScores::read(const Tensors& inputs) const {
  require_whole(inputs[1]);
  const at::Tensor labels = inputs[1].flatten().to(at::kLong);
  TORCH_CHECK((is_binary_ ? inputs[0].numel() : inputs[0].numel() / inputs[0].size(class_dim_)) == labels.numel(),
              "it compares logits [N, C, …] with class indices [N, …], not ", shape_text(inputs[0].sizes()), " and ",
              shape_text(inputs[1].sizes()));
  const at::Tensor scores = is_binary_ ? inputs[0].flatten() : inputs[0].movedim(class_dim_, -1).flatten(0, -2);
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
