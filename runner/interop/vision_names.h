#pragma once

#include <nlohmann/json.hpp>

#include <array>
#include <optional>
#include <string>

#include "registry/kinds/layer.h"
#include "registry/tensors/named_tensors.h"

namespace trainrun {

/// A registered vision model as transformers has it.
struct VisionModel {
  std::string architecture;  // "ResNetForImageClassification"
  nlohmann::json config;     // of config.json, without the names of the labels
};

/// What transformers calls the model, which reads images of `shape` ([C, H, W]); nothing: it has no class that computes
/// the same. Throws Error where it has one, but not with these parameters, and says which.
std::optional<VisionModel> vision_model(const Component<LayerKind>& layer, const std::array<int64_t, 3>& shape);

/// The tensors of such a model, by torchvision's names, under transformers' names and in its shapes.
NamedTensors vision_tensors(const std::string& architecture, const NamedTensors& tensors);

}  // namespace trainrun
