#include "registry/components/transforms/labels.h"
#include "registry/kinds/transform.h"

namespace trainrun {
namespace {

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

}  // namespace

void add_label_transforms(TransformRegistry& transforms) {
  transforms.add<OneHot>("OneHot", "classes as vectors of 0 and 1, [N, num_classes] float32");
}

}  // namespace trainrun
