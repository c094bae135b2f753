#include <algorithm>

#include "registry/models/listing.h"

// torchvision's MobileNets. Sources: Sandler et al. 2018, "MobileNetV2: Inverted Residuals and Linear Bottlenecks";
// Howard et al. 2019, "Searching for MobileNetV3".

namespace trainrun {
namespace {

using nlohmann::json;

/// What both have.
struct MobileNetOptions {
  std::optional<int64_t> num_classes = 1000;
  double dropout = 0.2;
  double width_mult = 1;

  template <class Own>
  static void describe_options(Fields<Own>& f) {
    f.optional("num_classes", &Own::num_classes)
        .at_least(1)
        .doc("outputs of the last layer; null: leave that layer out and return the features that it would read");
    f.optional("dropout", &Own::dropout).at_least(0).at_most(1).doc("dropout before the last layer");
    f.optional("width_mult", &Own::width_mult)
        .greater_than(0)
        .doc("factor by which the number of channels of each layer is multiplied");
  }
  int64_t scaled(int64_t channels) const { return divisible_by_8(static_cast<double>(channels) * width_mult); }
};

/// The weights of both are drawn alike.
Layer with_drawn_weights(const Listing& model, const LayerInputs& in) {
  auto graph = model.build(in);
  draw_weights(*graph, draw({{"type", "KaimingNormal"}, {"mode", "fan_out"}}),
               draw({{"type", "Normal"}, {"std", 0.01}}));
  return whole_model(std::move(graph));
}

/// A block of V2: `inner` as its layers `conv`, and a shortcut where the shapes allow one.
Listing with_shortcut(Listing inner, const std::string& name, bool has_shortcut) {
  Listing block;
  block.add(std::move(inner), name);
  if (has_shortcut) block.add("Add", {{"name", "sum"}, {"inputs", {name, "x"}}});
  return block;
}

struct MobileNetV2 : MobileNetOptions {
  static void describe(Fields<MobileNetV2>& f) { describe_options(f); }

  Layer build(const LayerInputs& in) const {
    in.require_dims(4, 4, "[N, C, H, W]");
    struct Stage {
      int64_t expansion, channels, blocks, stride;
    };
    int64_t before = scaled(32);
    Listing features;
    features.add(ConvNormActivation{before, 3, 2, 1, "ReLU6"}.listing());
    for (const Stage& stage : {Stage{1, 16, 1, 1}, Stage{6, 24, 2, 2}, Stage{6, 32, 3, 2}, Stage{6, 64, 4, 2},
                               Stage{6, 96, 3, 1}, Stage{6, 160, 3, 2}, Stage{6, 320, 1, 1}}) {
      const int64_t channels = scaled(stage.channels);
      for (int64_t i = 0; i < stage.blocks; ++i) {
        const int64_t stride = i == 0 ? stage.stride : 1;
        features.add(with_shortcut(inverted(before, channels, stride, stage.expansion), "conv",
                                   stride == 1 && before == channels));
        before = channels;
      }
    }
    const int64_t last = divisible_by_8(1280 * std::max(1.0, width_mult));
    features.add(ConvNormActivation{last, 1, 1, 1, "ReLU6"}.listing());
    Listing model;
    model.add(std::move(features), "features");
    model.add("AdaptiveAvgPool2d", {{"name", "avgpool"}, {"output_size", 1}});
    model.add("Flatten", {{"name", "flatten"}});
    Listing classifier;
    classifier.add("Dropout", {{"p", dropout}});
    if (num_classes) classifier.add("Linear", {{"out_features", *num_classes}});
    model.add(std::move(classifier), "classifier");
    return with_drawn_weights(model, in);
  }

 private:
  static Listing inverted(int64_t before, int64_t channels, int64_t stride, int64_t expansion) {
    const int64_t hidden = before * expansion;
    Listing layers;
    if (expansion != 1) layers.add(ConvNormActivation{hidden, 1, 1, 1, "ReLU6"}.listing());
    layers.add(ConvNormActivation{hidden, 3, stride, hidden, "ReLU6"}.listing());
    layers.add("Conv2d", {{"out_channels", channels}, {"kernel_size", 1}, {"bias", false}});
    layers.add("BatchNorm2d");
    return layers;
  }
};

/// A row of the paper's tables 1 and 2.
struct Bottleneck {
  int64_t kernel_size;
  int64_t expanded;
  int64_t channels;
  bool squeezes;
  const char* activation;
  int64_t stride;
};

constexpr const char* kHard = "Hardswish";
constexpr Bottleneck kLarge[] = {
    {3, 16, 16, false, "ReLU", 1}, {3, 64, 24, false, "ReLU", 2}, {3, 72, 24, false, "ReLU", 1},
    {5, 72, 40, true, "ReLU", 2},  {5, 120, 40, true, "ReLU", 1}, {5, 120, 40, true, "ReLU", 1},
    {3, 240, 80, false, kHard, 2}, {3, 200, 80, false, kHard, 1}, {3, 184, 80, false, kHard, 1},
    {3, 184, 80, false, kHard, 1}, {3, 480, 112, true, kHard, 1}, {3, 672, 112, true, kHard, 1},
    {5, 672, 160, true, kHard, 2}, {5, 960, 160, true, kHard, 1}, {5, 960, 160, true, kHard, 1}};
constexpr Bottleneck kSmall[] = {
    {3, 16, 16, true, "ReLU", 2}, {3, 72, 24, false, "ReLU", 2}, {3, 88, 24, false, "ReLU", 1},
    {5, 96, 40, true, kHard, 2},  {5, 240, 40, true, kHard, 1},  {5, 240, 40, true, kHard, 1},
    {5, 120, 48, true, kHard, 1}, {5, 144, 48, true, kHard, 1},  {5, 288, 96, true, kHard, 2},
    {5, 576, 96, true, kHard, 1}, {5, 576, 96, true, kHard, 1}};

template <bool kIsLarge>
struct MobileNetV3 : MobileNetOptions {
  static void describe(Fields<MobileNetV3>& f) { describe_options(f); }

  Layer build(const LayerInputs& in) const {
    in.require_dims(4, 4, "[N, C, H, W]");
    int64_t before = scaled(16);
    Listing features;
    features.add(convolution(before, 3, 2, 1, kHard));
    const auto add = [&](const Bottleneck& row) {
      const int64_t channels = scaled(row.channels);
      features.add(with_shortcut(inverted(row, before), "block", row.stride == 1 && before == channels));
      before = channels;
    };
    if constexpr (kIsLarge) {
      for (const Bottleneck& row : kLarge) add(row);
    } else {
      for (const Bottleneck& row : kSmall) add(row);
    }
    features.add(convolution(6 * before, 1, 1, 1, kHard));
    Listing model;
    model.add(std::move(features), "features");
    model.add("AdaptiveAvgPool2d", {{"name", "avgpool"}, {"output_size", 1}});
    model.add("Flatten", {{"name", "flatten"}});
    Listing classifier;
    classifier.add("Linear", {{"out_features", scaled(kIsLarge ? 1280 : 1024)}}).add(kHard);
    classifier.add("Dropout", {{"p", dropout}});
    if (num_classes) classifier.add("Linear", {{"out_features", *num_classes}});
    model.add(std::move(classifier), "classifier");
    return with_drawn_weights(model, in);
  }

 private:
  static Listing convolution(int64_t channels, int64_t kernel_size, int64_t stride, int64_t groups,
                             const std::string& activation) {
    const json norm = {{"eps", 0.001}, {"momentum", 0.01}};
    return ConvNormActivation{channels, kernel_size, stride, groups, activation, norm}.listing();
  }

  Listing inverted(const Bottleneck& row, int64_t before) const {
    const int64_t hidden = scaled(row.expanded);
    Listing layers;
    if (hidden != before) layers.add(convolution(hidden, 1, 1, 1, row.activation));
    layers.add(convolution(hidden, row.kernel_size, row.stride, hidden, row.activation));
    if (row.squeezes) {
      const int64_t quarter = hidden / 4;
      layers.add(squeeze_excitation(hidden, divisible_by_8(static_cast<double>(quarter)), "ReLU", "Hardsigmoid"));
    }
    layers.add(convolution(scaled(row.channels), 1, 1, 1, ""));
    return layers;
  }
};

}  // namespace

void add_mobilenets(LayerRegistry& layers) {
  layers.add<MobileNetV2>("MobileNetV2", "inverted residuals with linear bottlenecks, for small devices");
  layers.add<MobileNetV3<false>>("MobileNetV3Small", "MobileNetV3, with squeeze and excitation, the small one");
  layers.add<MobileNetV3<true>>("MobileNetV3Large", "MobileNetV3, with squeeze and excitation, the large one");
}

}  // namespace trainrun
