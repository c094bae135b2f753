#include <ATen/ops/empty.h>

#include "registry/components/transforms/fields.h"
#include "registry/kinds/layer_shapes.h"
#include "registry/kinds/transform.h"

// Fields made of others.

namespace trainrun {
namespace {

/// Adds a field like `like` under `name`, which must be new.
void add_field(DatasetInfo& info, const FieldInfo& like, const std::string& name, const std::string& transform) {
  if (info.find(name)) throw LayerError(transform + ": there is a field '" + name + "' already");
  FieldInfo field = like;
  field.name = name;
  info.fields.push_back(field);
}

struct Copy {
  std::string field = "image";
  std::string to;

  static void describe(Fields<Copy>& f) {
    f.optional("field", &Copy::field).doc("the field of the batch to copy");
    f.required("to", &Copy::to).doc("the name of the copy; later transforms can change either field");
  }
  void change(DatasetInfo& info) const { add_field(info, FieldInfo(find_field(info, field, "Copy")), to, "Copy"); }
  void apply(Batch& batch, const SampleDraws&) const { batch.set(to, batch.at(field).clone()); }
  std::unique_ptr<Transform> build(const TransformInputs&) const { return stateless(*this); }
};

struct Triplets {
  std::string field = "image";
  std::string label = "label";
  std::string positive = "positive";
  std::string negative = "negative";

  static void describe(Fields<Triplets>& f) {
    f.optional("field", &Triplets::field).doc("the field of the batch whose samples are the anchors");
    f.optional("label", &Triplets::label).doc("the field that holds the classes of the samples");
    f.optional("positive", &Triplets::positive)
        .doc("the new field that holds, for each anchor, another sample of its class");
    f.optional("negative", &Triplets::negative)
        .doc("the new field that holds, for each anchor, a sample of another class");
  }
  void check(Checker& checker) const {
    if (positive == negative) checker.fail("negative", "the two new fields need two names");
  }
  void change(DatasetInfo& info) const {
    const FieldInfo& labels = find_field(info, label, "Triplets");
    if (labels.dtype != at::kLong || !labels.shape.empty()) {
      throw LayerError("Triplets: '" + label + "' does not hold a class (int64) for each sample");
    }
    const FieldInfo anchors = find_field(info, field, "Triplets");
    add_field(info, anchors, positive, "Triplets");
    add_field(info, anchors, negative, "Triplets");
  }
  /// Chooses among the samples of the batch it is given, so batch size and ranks change what there is to choose from.
  void apply(Batch& batch, const SampleDraws& draws) const {
    const at::Tensor labels = batch.at(label).contiguous();
    const int64_t n = labels.numel();
    const auto* classes = labels.const_data_ptr<int64_t>();
    at::Tensor chosen = at::empty({2, n}, at::kLong);
    auto* to = chosen.mutable_data_ptr<int64_t>();
    std::vector<int64_t> same, other;
    for (int64_t i = 0; i < n; ++i) {
      same.clear(), other.clear();
      for (int64_t j = 0; j < n; ++j) {
        if (j != i) (classes[j] == classes[i] ? same : other).push_back(j);
      }
      if (same.empty()) same.push_back(i);  // alone of its class
      if (other.empty()) throw DataError("Triplets: all samples of a batch are of class " + std::to_string(classes[i]));
      RandomStream random = draws.of(i);
      to[i] = same[static_cast<size_t>(random.integer(static_cast<int64_t>(same.size())))];
      to[n + i] = other[static_cast<size_t>(random.integer(static_cast<int64_t>(other.size())))];
    }
    const at::Tensor& anchors = batch.at(field);
    const at::Tensor positives = anchors.index_select(0, chosen[0]);
    const at::Tensor negatives = anchors.index_select(0, chosen[1]);
    batch.set(positive, positives);
    batch.set(negative, negatives);
  }
  std::unique_ptr<Transform> build(const TransformInputs&) const { return stateless(*this); }
};

}  // namespace

void add_derived_fields(TransformRegistry& transforms) {
  transforms.add<Copy>("Copy", "copies a field of the batch to another name");
  transforms.add<Triplets>("Triplets",
                           "adds, for each sample of a batch, another sample of its class and one of another class");
}

}  // namespace trainrun
