#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <cmath>

#include "registry/components/transforms/labels.h"
#include "registry/kinds/transform.h"

namespace trainrun {
namespace {

/// The parameters that Mixup and CutMix share.
struct MixingOptions {
  double alpha = 1;
  std::optional<int64_t> num_classes;
  std::string field = "image";
  std::string label = "label";

  template <class C>
  static void describe_into(Fields<C>& f, const char* alpha_doc) {
    f.optional("alpha", &C::alpha).greater_than(0).doc(alpha_doc);
    f.optional("num_classes", &C::num_classes)
        .at_least(1)
        .doc("number of classes of the labels; the data set's by default");
    f.optional("field", &C::field).doc("the field of the batch that is mixed");
    f.optional("label", &C::label).doc("its labels: classes become soft ones, [N, num_classes]; numbers are mixed");
  }
  void change_labels(DatasetInfo& info, const char* transform) const {
    FieldInfo& labels = find_field(info, label, transform);
    if (!at::isFloatingType(labels.dtype)) describe_one_hot(labels, classes_of(info, label, num_classes), transform);
  }
};

/// own = share * own + (1 - share) * others, a share a row
void mix(at::Tensor& own, const at::Tensor& others, const at::Tensor& shares) {
  std::vector<int64_t> shape(static_cast<size_t>(own.dim()), 1);
  shape[0] = own.size(0);
  const at::Tensor share = shares.to(own.scalar_type()).view(shape);
  own = others.mul(1 - share).add_(own.mul(share));
}

/// torchvision's MixUp and CutMix, but that each sample has a share of its own, and is mixed with the one before it in
/// the epoch's order: a batch's first sample with the last of the batch before, wherever batches are cut and whatever
/// rank has it. `Options` has `void change(DatasetInfo&)` and `at::Tensor mixed(own, others, draws)`, which mixes the
/// field and returns the share of each sample that is its own.
template <class Options>
class PairTransform : public Transform {
 public:
  PairTransform(Options options, std::optional<int64_t> num_classes)
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
    const at::Tensor shares = options_.mixed(batch.at(options_.field), before.at(options_.field), draws);
    at::Tensor& labels = batch.at(options_.label);
    at::Tensor others = before.at(options_.label);
    if (!labels.is_floating_point()) {
      labels = one_hot(labels, *num_classes_, options_.label);
      others = one_hot(others, *num_classes_, options_.label);
    }
    mix(labels, others, shares);
  }

 private:
  Options options_;
  std::optional<int64_t> num_classes_;
};

struct Mixup : MixingOptions {
  static void describe(Fields<Mixup>& f) {
    describe_into(f,
                  "each sample's proportion is drawn from Beta(alpha, alpha): with 1, all are equally likely; below 1, "
                  "those near 0 and 1 are likelier");
  }
  void change(DatasetInfo& info) const {
    float_field(info, field, "Mixup");
    change_labels(info, "Mixup");
  }
  at::Tensor mixed(at::Tensor& own, const at::Tensor& others, const SampleDraws& draws) const {
    at::Tensor shares = at::empty({own.size(0)});
    for (int64_t i = 0; i < own.size(0); ++i) {
      shares.mutable_data_ptr<float>()[i] = static_cast<float>(draws.of(i).beta(alpha));
    }
    mix(own, others, shares);
    return shares;
  }
  std::unique_ptr<Transform> build(const TransformInputs& inputs) const {
    return std::make_unique<PairTransform<Mixup>>(*this, classes_of(inputs.info, label, num_classes));
  }
};

struct CutMix : MixingOptions {
  static void describe(Fields<CutMix>& f) {
    describe_into(f,
                  "the share of an image that another's rectangle covers, at most, is drawn from Beta(alpha, alpha): "
                  "with 1, all are equally likely");
  }
  void change(DatasetInfo& info) const {
    pixel_field(info, field, "CutMix");
    change_labels(info, "CutMix");
  }

  struct Box {
    int64_t left, top, right, bottom;
  };
  /// In torchvision's order: the share, then the centre. What would lie outside the image is cut off.
  Box draw_box(int64_t height, int64_t width, RandomStream& random) const {
    const auto share = static_cast<float>(random.beta(alpha));
    const int64_t x = random.integer(width);
    const int64_t y = random.integer(height);
    const double half = 0.5 * std::sqrt(1.0 - static_cast<double>(share));
    const auto half_width = static_cast<int64_t>(half * static_cast<double>(width));
    const auto half_height = static_cast<int64_t>(half * static_cast<double>(height));
    return {std::max<int64_t>(x - half_width, 0), std::max<int64_t>(y - half_height, 0),
            std::min(x + half_width, width), std::min(y + half_height, height)};
  }
  at::Tensor mixed(at::Tensor& own, const at::Tensor& others, const SampleDraws& draws) const {
    const int64_t height = own.size(2);
    const int64_t width = own.size(3);
    own = own.clone();
    at::Tensor shares = at::empty({own.size(0)});
    for (int64_t i = 0; i < own.size(0); ++i) {
      RandomStream random = draws.of(i);
      const Box box = draw_box(height, width, random);
      const auto part_of = [&](const at::Tensor& images) {
        return images[i].narrow(1, box.top, box.bottom - box.top).narrow(2, box.left, box.right - box.left);
      };
      part_of(own).copy_(part_of(others));
      const auto covered = static_cast<double>((box.right - box.left) * (box.bottom - box.top));
      shares.mutable_data_ptr<float>()[i] = static_cast<float>(1 - covered / static_cast<double>(width * height));
    }
    return shares;
  }
  std::unique_ptr<Transform> build(const TransformInputs& inputs) const {
    return std::make_unique<PairTransform<CutMix>>(*this, classes_of(inputs.info, label, num_classes));
  }
};

}  // namespace

void add_mixing_transforms(TransformRegistry& transforms) {
  transforms.add<Mixup>("Mixup", "each sample and its label mixed with those of the sample before it in the epoch");
  transforms.add<CutMix>("CutMix",
                         "a rectangle of each image, and its share of the label, are those of the sample before it");
}

}  // namespace trainrun
