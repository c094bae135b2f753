#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
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
    f.optional("num_classes", &OneHot::num_classes)
        .at_least(1)
        .doc("length of each vector; the data set's number of classes by default");
    f.optional("field", &OneHot::field).doc("the field of the batch to change");
  }
  void change(DatasetInfo& info) const {
    describe_one_hot(find_field(info, field, "OneHot"), classes_of(info, field, num_classes), "OneHot");
  }
  void apply(Batch& batch, const SampleDraws&) const {
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
        .doc(
            "each sample's proportion is drawn from Beta(alpha, alpha): with 1, all are equally likely; below 1, those "
            "near 0 and 1 are likelier");
    f.optional("num_classes", &Mixup::num_classes)
        .at_least(1)
        .doc("number of classes of the labels; the data set's by default");
    f.optional("field", &Mixup::field).doc("the field of the batch that is mixed");
    f.optional("label", &Mixup::label).doc("its labels: classes become soft ones, [N, num_classes]; numbers are mixed");
  }
  void change(DatasetInfo& info) const {
    float_field(info, field, "Mixup");
    FieldInfo& labels = find_field(info, label, "Mixup");
    if (!at::isFloatingType(labels.dtype)) describe_one_hot(labels, classes_of(info, label, num_classes), "Mixup");
  }
  std::unique_ptr<Transform> build(const TransformInputs&) const;
};

/// torchvision's MixUp, but that each sample has a share of its own, and is mixed with the one before it in the epoch's
/// order: a batch's first sample with the last of the batch before, wherever batches are cut and whatever rank has it.
class MixupTransform : public Transform {
 public:
  MixupTransform(Mixup options, std::optional<int64_t> num_classes)
      : options_(std::move(options)), num_classes_(num_classes) {}

  void describe(DatasetInfo& info) const override { options_.change(info); }
  bool pairs() const override { return true; }
  /// torchvision's pairs, of a batch by itself: before its first sample comes its last.
  void apply(Batch& batch, const SampleDraws& draws) const override {
    Batch before;
    for (const Batch::Field& field : batch.fields()) before.set(field.name, field.tensor.roll(1, 0));
    apply_to_pairs(batch, before, draws);
  }

  void apply_to_pairs(Batch& batch, const Batch& before, const SampleDraws& draws) const override {
    const int64_t n = batch.size();
    at::Tensor shares = at::empty({n});  // [N]
    for (int64_t i = 0; i < n; ++i) {
      shares.mutable_data_ptr<float>()[i] = static_cast<float>(draws.of(i).beta(options_.alpha));
    }
    mix(batch.at(options_.field), before.at(options_.field), shares);
    at::Tensor& labels = batch.at(options_.label);
    at::Tensor others = before.at(options_.label);
    if (!labels.is_floating_point()) {
      labels = one_hot(labels, *num_classes_, options_.label);
      others = one_hot(others, *num_classes_, options_.label);
    }
    mix(labels, others, shares);
  }

 private:
  /// own = share * own + (1 - share) * others, a share a row
  static void mix(at::Tensor& own, const at::Tensor& others, const at::Tensor& shares) {
    std::vector<int64_t> shape(static_cast<size_t>(own.dim()), 1);
    shape[0] = own.size(0);
    const at::Tensor share = shares.to(own.scalar_type()).view(shape);
    own = others.mul(1 - share).add_(own.mul(share));
  }

  Mixup options_;
  std::optional<int64_t> num_classes_;
};

std::unique_ptr<Transform> Mixup::build(const TransformInputs& inputs) const {
  return std::make_unique<MixupTransform>(*this, classes_of(inputs.info, label, num_classes));
}

}  // namespace

void add_label_transforms(TransformRegistry& transforms) {
  transforms.add<OneHot>("OneHot", "classes as vectors of 0 and 1, [N, num_classes] float32");
  transforms.add<Mixup>("Mixup", "each sample and its label mixed with those of the sample before it in the epoch");
}

}  // namespace trainrun
