#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "registry/components/transforms/augmentation.h"

namespace trainrun {

/// The data set on which AutoAugment's policies were found.
enum class AutoAugmentPolicy { kImageNet, kCifar10, kSvhn };
template <>
struct Words<AutoAugmentPolicy> {
  static constexpr std::array kWords = {"imagenet", "cifar10", "svhn"};
};

/// An augmentation that a policy makes with some probability, with the magnitude in that bin of ten.
struct PolicyStep {
  Augmentation augmentation;
  double probability;
  int64_t bin;
};
using PolicySteps = std::array<PolicyStep, 2>;

/// The 25 pairs of augmentations, one of which an image goes through. Source: torchvision's AutoAugment._get_policies;
/// Cubuk et al. 2019, "AutoAugment: Learning Augmentation Strategies from Data".
const std::vector<PolicySteps>& steps_of(AutoAugmentPolicy policy);

}  // namespace trainrun
