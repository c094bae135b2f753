#include "registry/components/losses/loss_of.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>

namespace trainrun {

at::Tensor ClassWeights::like(const at::Tensor& tensor) const {
  if (!has_value()) return {};
  const auto options = at::TensorOptions().dtype(tensor.scalar_type()).device(tensor.device());
  if (tensor.is_meta()) return at::empty({static_cast<int64_t>((*this)->size())}, options);
  if (!made_.defined() || made_.scalar_type() != tensor.scalar_type() || made_.device() != tensor.device()) {
    made_ = at::tensor(**this, options);
  }
  return made_;
}

void require_roles(const LayerInputs& in, const std::vector<std::string>& roles) {
  if (in.examples.size() == roles.size()) return;
  throw LayerError("it reads " + std::to_string(roles.size()) + " inputs, but gets " +
                   std::to_string(in.examples.size()) + "; write inputs: [" + join(roles) + "]");
}

void require_described_roles(const LayerInputs& in, const std::vector<std::string>& roles) {
  if (in.examples.size() == roles.size()) return;
  std::string target;
  for (const std::string& field : in.names) target = field.empty() ? target : field;
  std::vector<std::string> written = roles;
  std::vector<std::string> described;
  for (std::string& role : written) {
    if (role == "target" && !target.empty()) {
      role = target;
    } else {
      described.push_back(role);
    }
  }
  try {
    require_roles(in, written);
  } catch (const LayerError& error) {
    if (described.empty()) throw;
    throw LayerError(error.what() + std::string(", where ") + join(described) +
                     (described.size() == 1 ? " stands for the name of a layer (name: …) or of a field of the data"
                                            : " stand for names of layers (name: …) or of fields of the data"));
  }
}

namespace {

bool are_labels(const at::Tensor& tensor) { return at::isIntegralType(tensor.scalar_type(), true); }

/// Whether `labels` are the [N] of an output [N, 1].
bool lack_last_dim(const at::Tensor& labels, const at::Tensor& output) {
  return are_labels(labels) && labels.dim() == 1 && output.dim() == 2 && output.size(1) == 1;
}

/// Whether classes are the last dimension of `output`, [N, T, C], as labels [N, T] show, and not the second.
bool have_classes_last(at::IntArrayRef output, at::IntArrayRef labels) {
  return output.size() >= 3 && output.size() == labels.size() + 1 && output.slice(0, labels.size()) == labels;
}

/// {type: Permute, dims: [0, 3, 1, 2]}: the last dimension of four becomes the second.
std::string last_to_second(size_t num_dims) {
  std::string dims = "0, " + std::to_string(num_dims - 1);
  for (size_t dim = 1; dim + 1 < num_dims; ++dim) dims += ", " + std::to_string(dim);
  return "{type: Permute, dims: [" + dims + "]}";
}

/// About a target that is numbers of another shape than the output's: what to do to the model; or "".
std::string advice_on_numbers(at::IntArrayRef output, at::IntArrayRef target) {
  const bool adds_one = output.size() == target.size() + 1 && output.back() == 1;
  if (adds_one && output.slice(0, target.size()) == target) {
    return ": put {type: Squeeze, dim: " + std::to_string(target.size()) + "} behind the last layer";
  }
  const bool lacks_one = target.size() == output.size() + 1 && target.back() == 1;
  if (lacks_one && target.slice(0, output.size()) == output) {
    return ": put {type: Unsqueeze, dim: " + std::to_string(output.size()) +
           "} behind the last layer, or take a Squeeze or Flatten away that takes the dimension off";
  }
  const bool differ_last = output.size() == 2 && target.size() == 2 && output[0] == target[0];
  return differ_last ? ": write out_features: " + std::to_string(target[1]) + " for the layer that gives the output"
                     : "";
}

/// About labels that have other dimensions than the output but for its classes.
std::string advice_on_dims(at::IntArrayRef output, at::IntArrayRef labels) {
  if (output.size() > labels.size()) return "; is a Flatten, or a pooling, missing before the last layer?";
  return ", but has " + shape_text(labels) +
         ": each sample has several, as of its tokens, so that the model must give classes for each: [N, T, C]; "
         "does a layer bring them together (Mean, Flatten, a pooled output), or is the output of another layer meant?";
}

}  // namespace

void require_alike(const LayerInputs& in, const std::vector<std::string>& roles) {
  for (size_t i = 1; i < in.examples.size(); ++i) {
    if (in.shape(i) == in.shape(0) || lack_last_dim(in.examples[i], in.examples[0])) continue;
    throw LayerError("the " + roles[0] + " is " + shape_text(in.shape(0)) + " and the " + roles[i] + " " +
                     shape_text(in.shape(i)) + "; they must have the same shape" +
                     (roles[i] == "target" ? advice_on_numbers(in.shape(0), in.shape(1)) : ""));
  }
}

int64_t class_dim_of(at::IntArrayRef output, int64_t class_dim) {
  const auto rank = static_cast<int64_t>(output.size());
  const int64_t dim = class_dim < 0 ? class_dim + rank : class_dim;
  if (dim >= 1 && dim < rank) return dim;
  throw LayerError("class_dim is " + std::to_string(class_dim) + ", but the output is " + shape_text(output) +
                   ", whose first dimension is the batch");
}

void set_classes(const LayerInputs& in, int64_t class_dim, std::optional<int64_t> ignore_index, LossFacts& facts) {
  if (in.examples.size() < 2 || in.examples[1].scalar_type() != at::kLong) return;
  const at::IntArrayRef output = in.examples[0].sizes();
  const auto rank = static_cast<int64_t>(output.size());
  const int64_t dim = rank == 2 ? 1 : class_dim < 0 ? class_dim + rank : class_dim;
  if (dim >= 1 && dim < rank) facts.classes = IndexRange{0, output[static_cast<size_t>(dim)], ignore_index};
}

void require_class_indices(const LayerInputs& in, const ClassWeights& weight, const std::string& class_dim) {
  const at::IntArrayRef output = in.shape(0);
  if (weight && (output.size() < 2 || static_cast<int64_t>(weight->size()) != output[1])) {
    throw LayerError("weight has " + std::to_string(weight->size()) + " classes, but the output is " +
                     shape_text(output));
  }
  std::vector<int64_t> labels = output.vec();  // [N, …]
  if (labels.size() > 1) labels.erase(labels.begin() + 1);
  const bool fits = in.shape(1) == at::IntArrayRef(labels);
  if (!fits && have_classes_last(output, in.shape(1))) {
    throw LayerError("classes are the last dimension of " + shape_text(output) + ", the loss wants them second; " +
                     (class_dim.empty() ? "put " + last_to_second(output.size()) + " before it" : class_dim));
  }
  const auto classes = in.num_classes.size() > 1 ? in.num_classes[1] : std::nullopt;
  if (classes && output.size() > 1 && output[1] < *classes) {
    throw LayerError("the output has " + std::to_string(output[1]) + " classes, but the labels have " +
                     std::to_string(*classes));
  }
  if (!fits) {
    throw LayerError("an output " + shape_text(output) + " needs labels " + shape_text(labels) +
                     (in.shape(1) == output ? ", not " + shape_text(output) : advice_on_dims(output, in.shape(1))));
  }
  if (in.examples[1].scalar_type() != at::kLong) {
    throw LayerError(std::string("labels are class indices (int64), not ") +
                     at::toString(in.examples[1].scalar_type()));
  }
}

void require_several_classes(const LayerInputs& in) {
  if (in.shape(0).size() < 2 || in.shape(0)[1] != 1) return;
  const bool are_numbers = in.examples[1].is_floating_point();
  throw LayerError(
      "the output " + shape_text(in.shape(0)) + " has one class, which is certain, so that the loss is always 0; " +
      (are_numbers ? "to learn the numbers of the target write loss: MSELoss (or L1Loss, SmoothL1Loss); for "
                     "classes write task: classification in the data set, and an output for each class"
                   : "give it an output for each class, or, for two classes, write loss: "
                     "BCEWithLogitsLoss, which reads one output"));
}

void require_last_dim(const LayerInputs& in, const std::string& parameter, const ClassWeights& weight) {
  if (!weight || weight->size() == 1) return;
  const at::IntArrayRef output = in.shape(0);
  if (output.size() > 1 && output.back() == static_cast<int64_t>(weight->size())) return;
  throw LayerError(parameter + " has " + std::to_string(weight->size()) + " numbers, one for each of the last " +
                   "dimension's elements, but the output is " + shape_text(output));
}

Tensors with_labels_as_numbers(Tensors inputs) {
  for (size_t i = 1; i < inputs.size(); ++i) {
    if (!are_labels(inputs[i])) continue;
    if (lack_last_dim(inputs[i], inputs[0])) inputs[i] = inputs[i].unsqueeze(1);
    inputs[i] = inputs[i].to(inputs[0].scalar_type());
  }
  return inputs;
}

}  // namespace trainrun
