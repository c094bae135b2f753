#include <algorithm>
#include <cmath>

#include "registry/graph/graph.h"
#include "registry/models/listing.h"

// torchvision's EfficientNets. Source: Tan and Le 2019, "EfficientNet: Rethinking Model Scaling for Convolutional Neural
// Networks".

namespace trainrun {
namespace {

/// How a model is scaled up from B0, and its dropout.
struct EfficientNetScale {
  double width;
  double depth;
  double dropout;
};

/// The paper's table 1.
struct EfficientNetStage {
  int64_t expansion, kernel_size, stride, channels, blocks;
};
constexpr EfficientNetStage kStages[] = {{1, 3, 1, 16, 1},  {6, 3, 2, 24, 2},  {6, 5, 2, 40, 2}, {6, 3, 2, 80, 3},
                                         {6, 5, 1, 112, 3}, {6, 5, 2, 192, 4}, {6, 3, 1, 320, 1}};

template <const EfficientNetScale& kScale>
struct EfficientNet {
  std::optional<int64_t> num_classes = 1000;
  double dropout = kScale.dropout;
  double stochastic_depth_prob = 0.2;
  static void describe(Fields<EfficientNet>& f) {
    f.optional("num_classes", &EfficientNet::num_classes)
        .at_least(1)
        .doc("outputs of the last layer; null: leave that layer out and return the features that it would read");
    f.optional("dropout", &EfficientNet::dropout).at_least(0).at_most(1).doc("dropout before the last layer");
    f.optional("stochastic_depth_prob", &EfficientNet::stochastic_depth_prob)
        .at_least(0)
        .at_most(1)
        .doc("probability that a sample skips the last block, while training; it grows from 0 at the first block");
  }

  Layer build(const LayerInputs& in) const {
    in.require_dims(4, 4, "[N, C, H, W]");
    int64_t before = scaled(32);
    Listing features;
    features.add(ConvNormActivation{before, 3, 2, 1, "SiLU"}.listing());
    int64_t total = 0;
    for (const EfficientNetStage& stage : kStages) total += repeats(stage);
    int64_t number = 0;  // of the block
    for (const EfficientNetStage& stage : kStages) {
      Listing blocks;
      for (int64_t i = 0; i < repeats(stage); ++i) {
        EfficientNetStage own = stage;
        if (i > 0) own.stride = 1;
        const double drop = stochastic_depth_prob * static_cast<double>(number++) / static_cast<double>(total);
        blocks.add(block(own, before, drop));
        before = scaled(stage.channels);
      }
      features.add(std::move(blocks));
    }
    features.add(ConvNormActivation{4 * before, 1, 1, 1, "SiLU"}.listing());
    Listing classifier;
    classifier.add("Dropout", {{"p", dropout}});
    if (num_classes) classifier.add("Linear", {{"out_features", *num_classes}});
    Listing model;
    model.add(std::move(features), "features");
    model.add("AdaptiveAvgPool2d", {{"name", "avgpool"}, {"output_size", 1}});
    model.add("Flatten", {{"name", "flatten"}});
    model.add(std::move(classifier), "classifier");
    auto graph = model.build(in);
    draw_weights(*graph, draw({{"type", "KaimingNormal"}, {"mode", "fan_out"}}), [](const at::Tensor& weight) {
      const double bound = 1 / std::sqrt(static_cast<double>(weight.size(0)));
      weight.uniform_(-bound, bound);
    });
    return whole_model(std::move(graph));
  }

 private:
  static int64_t scaled(int64_t channels) { return divisible_by_8(static_cast<double>(channels) * kScale.width); }
  static int64_t repeats(const EfficientNetStage& stage) {
    return static_cast<int64_t>(std::ceil(static_cast<double>(stage.blocks) * kScale.depth));
  }

  static Listing block(const EfficientNetStage& stage, int64_t before, double drop) {
    const int64_t channels = scaled(stage.channels);
    const int64_t hidden = divisible_by_8(static_cast<double>(before * stage.expansion));
    Listing layers;
    if (hidden != before) layers.add(ConvNormActivation{hidden, 1, 1, 1, "SiLU"}.listing());
    layers.add(ConvNormActivation{hidden, stage.kernel_size, stage.stride, hidden, "SiLU"}.listing());
    layers.add(squeeze_excitation(hidden, std::max<int64_t>(1, before / 4), "SiLU", "Sigmoid"));
    layers.add(ConvNormActivation{channels, 1, 1, 1, ""}.listing());
    Listing block;
    block.add(std::move(layers), "block");
    if (stage.stride != 1 || before != channels) return block;
    block.add("StochasticDepth", {{"name", "stochastic_depth"}, {"p", drop}});
    block.add("Add", {{"name", "sum"}, {"inputs", {"stochastic_depth", "x"}}});
    return block;
  }
};

constexpr EfficientNetScale kB0 = {1.0, 1.0, 0.2};
constexpr EfficientNetScale kB1 = {1.0, 1.1, 0.2};
constexpr EfficientNetScale kB2 = {1.1, 1.2, 0.3};
constexpr EfficientNetScale kB3 = {1.2, 1.4, 0.3};
constexpr EfficientNetScale kB4 = {1.4, 1.8, 0.4};

}  // namespace

void add_efficientnets(LayerRegistry& layers) {
  layers.add<EfficientNet<kB0>>("EfficientNetB0", "EfficientNet, the smallest; the others are larger versions");
  layers.add<EfficientNet<kB1>>("EfficientNetB1", "EfficientNetB0 with 1.1 times as many layers");
  layers.add<EfficientNet<kB2>>("EfficientNetB2", "EfficientNetB0, 1.1 times as wide and 1.2 times as deep");
  layers.add<EfficientNet<kB3>>("EfficientNetB3", "EfficientNetB0, 1.2 times as wide and 1.4 times as deep");
  layers.add<EfficientNet<kB4>>("EfficientNetB4", "EfficientNetB0, 1.4 times as wide and 1.8 times as deep");
}

}  // namespace trainrun
