#pragma once

#include <ATen/ops/cat.h>

#include <concepts>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "registry/components/transforms/masks.h"

namespace trainrun {

/// "[N, 1, 28, 28]": a batch of such samples.
std::string batch_text(const std::vector<int64_t>& shape);

/// The field that `transform` is to change. Throws LayerError naming the fields there are.
FieldInfo& find_field(DatasetInfo& info, const std::string& name, const std::string& transform);
/// The same, which must be images [C, H, W]; or, for `float_field`, numbers of floating point.
FieldInfo& image_field(DatasetInfo& info, const std::string& name, const std::string& transform);
FieldInfo& float_field(DatasetInfo& info, const std::string& name, const std::string& transform);
/// Images of floating point, or of bytes.
FieldInfo& pixel_field(DatasetInfo& info, const std::string& name, const std::string& transform);
/// The same of one channel, gray, or of three, red, green and blue.
FieldInfo& color_field(DatasetInfo& info, const std::string& name, const std::string& transform);
/// Whether the images differ in size.
bool has_any_size(const FieldInfo& images);
/// `change(float images)`, of bytes rounded back to bytes.
template <class Change>
at::Tensor as_floats(const at::Tensor& images, const Change& change) {
  if (images.scalar_type() != at::kByte) return change(images);
  constexpr double kMost = 255;
  return change(images.to(at::kFloat)).round_().clamp_(0, kMost).to(at::kByte);
}

/// Images [N, C, H, W] of which each is changed by its own draws: `change(image, random)` gets, and returns, one of
/// [1, C, H, W], and must not write into it.
template <class Change>
at::Tensor each_changed(const at::Tensor& images, const SampleDraws& draws, const Change& change) {
  std::vector<at::Tensor> changed;
  for (int64_t i = 0; i < images.size(0); ++i) {
    RandomStream random = draws.of(i);
    changed.push_back(change(images.narrow(0, i, 1), random));
  }
  if (changed.empty()) return images;
  return changed.size() == 1 ? changed[0] : at::cat(changed);
}

/// `Options` has `std::optional<Options> for_masks(double fill) const`: see ChangesMasks.
template <class Options>
concept KnowsMasks = requires(const Options& options) { options.for_masks(0.0); };

/// The base of those that do not.
class NoMasks {
 public:
  virtual ~NoMasks() = default;
  virtual std::shared_ptr<const Transform> for_masks(double) const { return nullptr; }
};

/// `Options` has `Values values() const`: see Transform.
template <class Options>
concept KnowsValues = requires(const Options& options) {
  { options.values() } -> std::same_as<Values>;
};

/// A transform that is its options and nothing more: `Options` has `void change(DatasetInfo&) const` and
/// `void apply(Batch&, const SampleDraws&) const`.
template <class Options>
class Stateless : public Transform, public std::conditional_t<KnowsMasks<Options>, ChangesMasks, NoMasks> {
 public:
  explicit Stateless(Options options) : options_(std::move(options)) {}
  void describe(DatasetInfo& info) const override { options_.change(info); }
  void apply(Batch& batch, const SampleDraws& draws) const override { options_.apply(batch, draws); }
  Values values() const override {
    if constexpr (KnowsValues<Options>) return options_.values();
    return Values::kChanged;
  }
  std::shared_ptr<const Transform> for_masks([[maybe_unused]] double fill) const override {
    if constexpr (KnowsMasks<Options>) {
      if (auto changed = options_.for_masks(fill)) return std::make_shared<Stateless>(std::move(*changed));
    }
    return nullptr;
  }

 private:
  Options options_;
};

template <class Options>
std::unique_ptr<Transform> stateless(Options options) {
  return std::make_unique<Stateless<Options>>(std::move(options));
}

}  // namespace trainrun
