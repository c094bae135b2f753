#include <ATen/TensorOperators.h>

#include <algorithm>
#include <cmath>

#include "registry/components/transforms/auto_augment_policies.h"
#include "registry/kinds/transform.h"

namespace trainrun {
namespace {

/// The parameters that all of these share.
struct AugmentationOptions : AugmentationPixels {
  std::string field = "image";

  template <class C>
  static void describe_into(Fields<C>& f) {
    f.optional("interpolation", &C::interpolation)
        .doc("how the pixels of an image that is turned or moved are computed");
    f.optional("fill", &C::fill)
        .doc("value of the areas that come in from outside the image: one number, or one for each channel; null: 0");
    f.optional("field", &C::field).doc("the field of the batch to change");
  }
  void change_described(DatasetInfo& info, const char* transform) const {
    const FieldInfo& images = color_field(info, field, transform);
    if (fill) check_fill(*fill, images, transform);
  }
  const AugmentationChoice& draw_choice(const AugmentationSpace& space, RandomStream& random) const {
    return space[static_cast<size_t>(random.integer(static_cast<int64_t>(space.size())))];
  }
};

/// `Options` has `at::Tensor changed(image, random)`.
template <class Options>
void change_each(const Options& options, Batch& batch, const SampleDraws& draws) {
  at::Tensor& images = batch.at(options.field);  // [N, C, H, W]
  images = each_changed(images, draws,
                        [&](const at::Tensor& image, RandomStream& random) { return options.changed(image, random); });
}

/// The parameter of those that divide their magnitudes finely.
template <class C>
void describe_bins(Fields<C>& f) {
  f.optional("num_magnitude_bins", &C::num_magnitude_bins)
      .at_least(2)
      .doc("number of magnitudes from the weakest to the strongest");
}

struct AutoAugment : AugmentationOptions {
  AutoAugmentPolicy policy = AutoAugmentPolicy::kImageNet;

  static void describe(Fields<AutoAugment>& f) {
    f.optional("policy", &AutoAugment::policy).doc("the data set for whose images the augmentations were found");
    describe_into(f);
  }
  void change(DatasetInfo& info) const { change_described(info, "AutoAugment"); }
  void apply(Batch& batch, const SampleDraws& draws) const { change_each(*this, batch, draws); }

  at::Tensor changed(const at::Tensor& image, RandomStream& random) const {
    constexpr int64_t kBins = 10;
    const auto& all = steps_of(policy);
    at::Tensor result = image;
    for (const PolicyStep& step : all[static_cast<size_t>(random.integer(static_cast<int64_t>(all.size())))]) {
      if (random.uniform() > step.probability) continue;
      const auto& space = auto_augment_space();
      const auto choice = std::find_if(space.begin(), space.end(), [&](const AugmentationChoice& candidate) {
        return candidate.augmentation == step.augmentation;
      });
      const double magnitude = draw_signed(choice->magnitudes, step.bin, kBins, image, random);
      result = augmented(result, step.augmentation, magnitude, *this);
    }
    return result;
  }
  std::unique_ptr<Transform> build(const TransformInputs&) const { return stateless(*this); }
};

struct RandAugment : AugmentationOptions {
  int64_t num_ops = 2;
  int64_t magnitude = 9;
  int64_t num_magnitude_bins = 31;

  static void describe(Fields<RandAugment>& f) {
    f.optional("num_ops", &RandAugment::num_ops).at_least(0).doc("number of augmentations that an image goes through");
    f.optional("magnitude", &RandAugment::magnitude)
        .at_least(0)
        .doc("how strong each is: a number below num_magnitude_bins");
    describe_bins(f);
    describe_into(f);
  }
  void check(Checker& checker) const {
    if (magnitude < num_magnitude_bins) return;
    checker.fail("magnitude", "must be below num_magnitude_bins, " + std::to_string(num_magnitude_bins));
  }
  void change(DatasetInfo& info) const { change_described(info, "RandAugment"); }
  void apply(Batch& batch, const SampleDraws& draws) const { change_each(*this, batch, draws); }

  at::Tensor changed(const at::Tensor& image, RandomStream& random) const {
    at::Tensor result = image;
    for (int64_t i = 0; i < num_ops; ++i) {
      const auto& [augmentation, magnitudes] = draw_choice(rand_augment_space(), random);
      const double drawn = draw_signed(magnitudes, magnitude, num_magnitude_bins, image, random);
      result = augmented(result, augmentation, drawn, *this);
    }
    return result;
  }
  std::unique_ptr<Transform> build(const TransformInputs&) const { return stateless(*this); }
};

struct TrivialAugmentWide : AugmentationOptions {
  int64_t num_magnitude_bins = 31;

  static void describe(Fields<TrivialAugmentWide>& f) {
    describe_bins(f);
    describe_into(f);
  }
  void change(DatasetInfo& info) const { change_described(info, "TrivialAugmentWide"); }
  void apply(Batch& batch, const SampleDraws& draws) const { change_each(*this, batch, draws); }

  at::Tensor changed(const at::Tensor& image, RandomStream& random) const {
    const auto& [augmentation, magnitudes] = draw_choice(trivial_augment_wide_space(), random);
    const int64_t bin = magnitudes.has_bins() ? random.integer(num_magnitude_bins) : 0;
    return augmented(image, augmentation, draw_signed(magnitudes, bin, num_magnitude_bins, image, random), *this);
  }
  std::unique_ptr<Transform> build(const TransformInputs&) const { return stateless(*this); }
};

/// `count` shares of Dirichlet(alpha, …, alpha), which add up to 1, rounded to float32.
std::vector<float> draw_shares(double alpha, int64_t count, RandomStream& random) {
  std::vector<double> logarithms;
  for (int64_t i = 0; i < count; ++i) logarithms.push_back(random.log_gamma(alpha));
  const double most = *std::max_element(logarithms.begin(), logarithms.end());
  double sum = 0;
  for (double& number : logarithms) sum += number = std::exp(number - most);
  std::vector<float> shares;
  for (const double number : logarithms) shares.push_back(static_cast<float>(number / sum));
  return shares;
}

struct AugMix : AugmentationOptions {
  static constexpr int64_t kBins = 10;
  int64_t severity = 3;
  int64_t mixture_width = 3;
  int64_t chain_depth = -1;
  double alpha = 1;
  bool all_ops = true;

  AugMix() { interpolation = Sampling::kBilinear; }
  static void describe(Fields<AugMix>& f) {
    f.optional("severity", &AugMix::severity)
        .at_least(1)
        .at_most(kBins)
        .doc("the strongest magnitude that is drawn, out of ten");
    f.optional("mixture_width", &AugMix::mixture_width).at_least(1).doc("number of changed images that are mixed");
    f.optional("chain_depth", &AugMix::chain_depth)
        .doc("number of augmentations that each goes through; below 1: drawn, from 1 to 3");
    f.optional("alpha", &AugMix::alpha)
        .greater_than(0)
        .doc("the shares of the images in the mixture are drawn from Dirichlet and Beta distributions of alpha");
    f.optional("all_ops", &AugMix::all_ops).doc("brightness, colour, contrast and sharpness are changed, too");
    describe_into(f);
  }
  void change(DatasetInfo& info) const { change_described(info, "AugMix"); }
  void apply(Batch& batch, const SampleDraws& draws) const { change_each(*this, batch, draws); }

  at::Tensor chain(const at::Tensor& image, RandomStream& random) const {
    constexpr int64_t kDeepest = 3;
    const int64_t depth = chain_depth > 0 ? chain_depth : 1 + random.integer(kDeepest);
    at::Tensor result = image;
    for (int64_t i = 0; i < depth; ++i) {
      const auto& [augmentation, magnitudes] = draw_choice(aug_mix_space(all_ops), random);
      const int64_t bin = magnitudes.has_bins() ? random.integer(severity) : 0;
      result = augmented(result, augmentation, draw_signed(magnitudes, bin, kBins, image, random), *this);
    }
    return result;
  }
  at::Tensor changed(const at::Tensor& image, RandomStream& random) const {
    const std::vector<float> two = draw_shares(alpha, 2, random);  // of the image, of what it is mixed with
    const std::vector<float> shares = draw_shares(alpha, mixture_width, random);
    at::Tensor mix = image.mul(static_cast<double>(two[0]));
    for (const float share : shares) mix.add_(chain(image, random).mul(static_cast<double>(share * two[1])));
    return mix.to(image.scalar_type());
  }
  std::unique_ptr<Transform> build(const TransformInputs&) const { return stateless(*this); }
};

}  // namespace

void add_auto_augment_transforms(TransformRegistry& transforms) {
  transforms.add<AutoAugment>("AutoAugment", "two augmentations: one of 25 learnt pairs (Cubuk et al. 2019)");
  transforms.add<RandAugment>("RandAugment", "some augmentations, all of the same strength (Cubuk et al. 2020)");
  transforms.add<TrivialAugmentWide>("TrivialAugmentWide",
                                     "one augmentation, of random strength (Müller, Hutter 2021)");
  transforms.add<AugMix>("AugMix", "an image mixed with changed ones (Hendrycks et al. 2020)");
}

}  // namespace trainrun
