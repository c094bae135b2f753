#include "registry/models/listing.h"

// torchvision's ConvNeXt. Source: Liu et al. 2022, "A ConvNet for the 2020s".

namespace trainrun {
namespace {

using nlohmann::json;

struct ConvNeXtStage {
  int64_t channels;
  int64_t blocks;
};
constexpr ConvNeXtStage kTiny[] = {{96, 3}, {192, 3}, {384, 9}, {768, 3}};
constexpr double kEps = 1e-6;

struct ConvNeXtTiny {
  std::optional<int64_t> num_classes = 1000;
  double stochastic_depth_prob = 0.1;
  double layer_scale = 1e-6;
  static void describe(Fields<ConvNeXtTiny>& f) {
    f.optional("num_classes", &ConvNeXtTiny::num_classes)
        .at_least(1)
        .doc("outputs of the last layer; null: leave that layer out and return the features that it would read");
    f.optional("stochastic_depth_prob", &ConvNeXtTiny::stochastic_depth_prob)
        .at_least(0)
        .at_most(1)
        .doc("probability that a sample skips the last block, while training; it grows from 0 at the first block");
    f.optional("layer_scale", &ConvNeXtTiny::layer_scale).doc("initial value of the factors of each block's output");
  }

  Layer build(const LayerInputs& in) const {
    in.require_dims(4, 4, "[N, C, H, W]");
    int64_t last = -1;  // block
    for (const ConvNeXtStage& stage : kTiny) last += stage.blocks;
    Listing features;
    int64_t number = 0;
    for (const ConvNeXtStage& stage : kTiny) {
      Listing between;
      const bool first = number == 0;
      if (!first) between.add("LayerNorm2d", {{"eps", kEps}});
      const int64_t patch = first ? 4 : 2;
      between.add("Conv2d", {{"out_channels", stage.channels}, {"kernel_size", patch}, {"stride", patch}});
      if (first) between.add("LayerNorm2d", {{"eps", kEps}});
      features.add(std::move(between));
      Listing blocks;
      for (int64_t i = 0; i < stage.blocks; ++i) {
        const double drop = stochastic_depth_prob * static_cast<double>(number++) / static_cast<double>(last);
        blocks.add(block(stage.channels, drop));
      }
      features.add(std::move(blocks));
    }
    Listing classifier;
    classifier.add("LayerNorm2d", {{"eps", kEps}}).add("Flatten");
    if (num_classes) classifier.add("Linear", {{"out_features", *num_classes}});
    Listing model;
    model.add(std::move(features), "features");
    model.add("AdaptiveAvgPool2d", {{"name", "avgpool"}, {"output_size", 1}});
    model.add(std::move(classifier), "classifier");
    auto graph = model.build(in);
    const Draw normal = draw({{"type", "TruncNormal"}, {"std", 0.02}});
    draw_weights(*graph, normal, normal);
    return whole_model(std::move(graph));
  }

 private:
  Listing block(int64_t channels, double drop) const {
    Listing layers;
    layers.add("Conv2d", {{"out_channels", channels}, {"kernel_size", 7}, {"padding", 3}, {"groups", channels}});
    layers.add("Permute", {{"dims", {0, 2, 3, 1}}});
    layers.add("LayerNorm", {{"eps", kEps}});
    layers.add("Linear", {{"out_features", 4 * channels}}).add("GELU").add("Linear", {{"out_features", channels}});
    layers.add("Permute", {{"dims", {0, 3, 1, 2}}});
    Listing block;
    block.add(std::move(layers), "block");
    block.add("LayerScale", {{"name", "layer_scale"}, {"init_value", layer_scale}});
    block.add("StochasticDepth", {{"name", "stochastic_depth"}, {"p", drop}});
    block.add("Add", {{"name", "sum"}, {"inputs", {"stochastic_depth", "x"}}});
    return block;
  }
};

}  // namespace

void add_convnexts(LayerRegistry& layers) {
  layers.add<ConvNeXtTiny>(
      "ConvNeXtTiny", "a convolutional net in the style of a Transformer's blocks, [N, C, H, W] to [N, num_classes]");
}

}  // namespace trainrun
