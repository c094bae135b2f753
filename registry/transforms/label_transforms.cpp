#include <ATen/TensorOperators.h>
#include <ATen/ops/_sample_dirichlet.h>
#include <ATen/ops/full.h>
#include <ATen/ops/one_hot.h>

#include "registry/catalog.h"
#include "registry/transforms/fields.h"

namespace trainrun {
namespace {

/// Classes of `field`: as given, or as the data set says.
std::optional<int64_t> classes_of(const DatasetInfo& info, const std::string& field, std::optional<int64_t> given) {
  const FieldInfo* found = info.find(field);
  return given || !found ? given : found->num_classes;
}

/// Changes what is known of labels that become one-hot.
void describe_one_hot(FieldInfo& labels, std::optional<int64_t> num_classes, const std::string& transform) {
  if (labels.dtype != at::kLong) {
    throw LayerError(transform + ": '" + labels.name + "' holds " + at::toString(labels.dtype) +
                     ", expected classes (int64)");
  }
  if (!num_classes) {
    throw LayerError(transform + ": the data set does not say how many classes '" + labels.name +
                     "' has; write num_classes");
  }
  labels.shape.push_back(*num_classes);
  labels.dtype = at::kFloat;
  labels.num_classes = num_classes;
}

/// [N, …] classes as [N, …, num_classes] float32.
at::Tensor one_hot(const at::Tensor& labels, int64_t num_classes, const std::string& field) {
  if (labels.numel() > 0) {
    const auto least = labels.min().item<int64_t>();
    const auto most = labels.max().item<int64_t>();
    if (least < 0 || most >= num_classes) {
      throw DataError("class " + std::to_string(least < 0 ? least : most) + " of '" + field + "' is not from 0 to " +
                      std::to_string(num_classes - 1));
    }
  }
  return at::one_hot(labels, num_classes).to(at::kFloat);
}

struct OneHot {
  std::optional<int64_t> num_classes;
  std::string field = "label";

  static void describe(Fields<OneHot>& f) {
    f.optional("num_classes", &OneHot::num_classes).at_least(1).doc("as many numbers each; the data set's by default");
    f.optional("field", &OneHot::field).doc("the field of the batch to change");
  }
  void change(DatasetInfo& info) const {
    describe_one_hot(find_field(info, field, "OneHot"), classes_of(info, field, num_classes), "OneHot");
  }
  void apply(Batch& batch, at::Generator&) const {
    at::Tensor& labels = batch.at(field);
    labels = one_hot(labels, *num_classes, field);
  }
  std::unique_ptr<Transform> build(const TransformInputs& inputs) const {
    OneHot known = *this;
    known.num_classes = classes_of(inputs.info, field, num_classes);
    return stateless(known);
  }
};

struct Mixup {
  double alpha = 1;
  std::optional<int64_t> num_classes;
  std::string field = "image";
  std::string label = "label";

  static void describe(Fields<Mixup>& f) {
    f.optional("alpha", &Mixup::alpha)
        .greater_than(0)
        .doc("a batch's share is drawn from Beta(alpha, alpha): 1 any alike, less: nearer to 0 or 1");
    f.optional("num_classes", &Mixup::num_classes).at_least(1).doc("of the labels; the data set's by default");
    f.optional("field", &Mixup::field).doc("the field of the batch that is mixed");
    f.optional("label", &Mixup::label).doc("its labels: classes become soft ones, [N, num_classes]; numbers are mixed");
  }
  void change(DatasetInfo& info) const {
    float_field(info, field, "Mixup");
    FieldInfo& labels = find_field(info, label, "Mixup");
    if (!at::isFloatingType(labels.dtype)) describe_one_hot(labels, classes_of(info, label, num_classes), "Mixup");
  }
  /// torchvision's MixUp: with the sample before it, the same share for all of the batch.
  void apply(Batch& batch, at::Generator& generator) const {
    const at::Tensor concentration = at::full({1, 2}, alpha);
    const double share = at::_sample_dirichlet(concentration, generator).flatten()[0].item<double>();
    at::Tensor& labels = batch.at(label);
    if (!labels.is_floating_point()) labels = one_hot(labels, *num_classes, label);
    for (at::Tensor* mixed : {&batch.at(field), &labels}) {
      *mixed = mixed->roll(1, 0).mul_(1 - share).add_(mixed->mul(share));
    }
  }
  std::unique_ptr<Transform> build(const TransformInputs& inputs) const {
    Mixup known = *this;
    known.num_classes = classes_of(inputs.info, label, num_classes);
    return stateless(known);
  }
};

}  // namespace

void add_label_transforms(TransformRegistry& transforms) {
  transforms.add<OneHot>("OneHot", "classes as vectors of 0 and 1, [N, num_classes] float32");
  transforms.add<Mixup>("Mixup", "each sample and its label mixed with another's");
}

}  // namespace trainrun
