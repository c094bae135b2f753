#include <algorithm>

#include "registry/models/listing.h"

// torchvision's VGGs. Source: Simonyan and Zisserman 2015, "Very Deep Convolutional Networks for Large-Scale Image
// Recognition".

namespace trainrun {
namespace {

/// How many convolutions there are before each of the five poolings.
struct VGGShape {
  int64_t convolutions[5];
  bool norm = false;
};

template <const VGGShape& kShape>
struct VGG {
  std::optional<int64_t> num_classes = 1000;
  double dropout = 0.5;
  static void describe(Fields<VGG>& f) {
    f.optional("num_classes", &VGG::num_classes)
        .at_least(1)
        .doc("outputs of the last layer; null: leave that layer out and return the features that it would read");
    f.optional("dropout", &VGG::dropout).at_least(0).at_most(1).doc("dropout between the last layers");
  }

  Layer build(const LayerInputs& in) const {
    in.require_dims(4, 4, "[N, C, H, W]");
    Listing features;
    int64_t channels = 64;
    for (const int64_t convolutions : kShape.convolutions) {
      for (int64_t i = 0; i < convolutions; ++i) {
        features.add("Conv2d", {{"out_channels", channels}, {"kernel_size", 3}, {"padding", 1}});
        if (kShape.norm) features.add("BatchNorm2d");
        features.add("ReLU");
      }
      features.add("MaxPool2d", {{"kernel_size", 2}});
      channels = std::min<int64_t>(2 * channels, 512);
    }
    Listing classifier;
    for (int i = 0; i < 2; ++i) {
      classifier.add("Linear", {{"out_features", 4096}}).add("ReLU").add("Dropout", {{"p", dropout}});
    }
    if (num_classes) classifier.add("Linear", {{"out_features", *num_classes}});
    Listing model;
    model.add(std::move(features), "features");
    model.add("AdaptiveAvgPool2d", {{"name", "avgpool"}, {"output_size", 7}});
    model.add("Flatten", {{"name", "flatten"}});
    model.add(std::move(classifier), "classifier");
    const auto graph = model.build(in);
    draw_weights(*graph, draw({{"type", "KaimingNormal"}, {"mode", "fan_out"}, {"nonlinearity", "relu"}}),
                 draw({{"type", "Normal"}, {"std", 0.01}}));
    return whole_model(graph);
  }
};

constexpr VGGShape kVGG11 = {{1, 1, 2, 2, 2}};
constexpr VGGShape kVGG13 = {{2, 2, 2, 2, 2}};
constexpr VGGShape kVGG16 = {{2, 2, 3, 3, 3}};
constexpr VGGShape kVGG19 = {{2, 2, 4, 4, 4}};
constexpr VGGShape kVGG11Norm = {{1, 1, 2, 2, 2}, true};
constexpr VGGShape kVGG13Norm = {{2, 2, 2, 2, 2}, true};
constexpr VGGShape kVGG16Norm = {{2, 2, 3, 3, 3}, true};
constexpr VGGShape kVGG19Norm = {{2, 2, 4, 4, 4}, true};

}  // namespace

void add_vggs(LayerRegistry& layers) {
  layers.add<VGG<kVGG11>>("VGG11", "VGG with 8 convolutions and 3 Linears, [N, C, H, W] to [N, num_classes]");
  layers.add<VGG<kVGG13>>("VGG13", "VGG with 10 convolutions and 3 Linears");
  layers.add<VGG<kVGG16>>("VGG16", "VGG with 13 convolutions and 3 Linears");
  layers.add<VGG<kVGG19>>("VGG19", "VGG with 16 convolutions and 3 Linears");
  layers.add<VGG<kVGG11Norm>>("VGG11_bn", "VGG11 with batch normalization");
  layers.add<VGG<kVGG13Norm>>("VGG13_bn", "VGG13 with batch normalization");
  layers.add<VGG<kVGG16Norm>>("VGG16_bn", "VGG16 with batch normalization");
  layers.add<VGG<kVGG19Norm>>("VGG19_bn", "VGG19 with batch normalization");
}

}  // namespace trainrun
