#pragma once

#include <nlohmann/json.hpp>

#include <functional>
#include <memory>
#include <string>

#include "registry/kinds/layer.h"

namespace trainrun {

/// The layers of a registered model, or of a piece of one, listed as a recipe would list them: the model is then a graph
/// of registered layers. The first input of a list is called `x` within it, or as said here; all of them have the names
/// that the list around it gives them, too.
class Listing {
 public:
  explicit Listing(const std::string& input = "x");

  /// Adds a registered layer, with what a recipe would say of it: {{"name", "fc"}, {"out_features", 10}}.
  Listing& add(const std::string& type, const nlohmann::json& parameters = nlohmann::json::object());
  /// Adds the layers of another list as a Sequential. "" is no name: the layers' state names have its index.
  Listing& add(Listing layers, const std::string& name = "", Names inputs = {}, const nlohmann::json& init = nullptr);

  int64_t size() const { return static_cast<int64_t>(list_.layers.size()); }
  /// Builds the layers for what flows in.
  std::shared_ptr<Graph> build(const LayerInputs& inputs) const { return inputs.graph(list_); }

 private:
  void append(Component<LayerKind> component, bool is_named);
  LayerList list_;
};

/// Overwrites weights with their initial values.
using Draw = std::function<void(const at::Tensor& weight)>;
/// Draws the weights of a model's convolutions and Linears in their order, and makes their biases 0; null leaves those
/// layers as they are. Does nothing in the shape mode. Torchvision's models, too, draw all weights once more at the end.
void draw_weights(const Graph& graph, const Draw& convolution, const Draw& linear);
/// The initializer that a recipe would write so: {{"type", "TruncNormal"}, {"std", 0.02}}.
Draw draw(const nlohmann::json& initializer);

/// What a registered model with Python's state names builds.
Layer whole_model(std::shared_ptr<Graph> graph);

/// A convolution that keeps the size (but for the stride), a normalization and an activation: torchvision's
/// Conv2dNormActivation.
struct ConvNormActivation {
  int64_t channels = 0;
  int64_t kernel_size = 3;
  int64_t stride = 1;
  int64_t groups = 1;
  std::string activation;                          // "" for none
  nlohmann::json norm = nlohmann::json::object();  // parameters of the BatchNorm2d
  Listing listing() const;
};

/// The channels of [N, C, H, W] weighed by what their means say: torchvision's SqueezeExcitation, with its state names.
/// Source: Hu et al. 2018, "Squeeze-and-Excitation Networks".
Listing squeeze_excitation(int64_t channels, int64_t squeezed, const std::string& activation, const std::string& gate);

/// `channels`, scaled, as the nearest multiple of 8 that is not below 90 % of it: torchvision's _make_divisible.
int64_t divisible_by_8(double channels);

}  // namespace trainrun
