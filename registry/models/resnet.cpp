#include <c10/core/GradMode.h>

#include <array>

#include "registry/graph/graph.h"
#include "registry/models/listing.h"

// torchvision's ResNets. Sources: He et al. 2016, "Deep Residual Learning for Image Recognition", with the stride at the
// 3x3 convolution of a bottleneck; Zagoruyko and Komodakis 2016, "Wide Residual Networks".

namespace trainrun {
namespace {

using nlohmann::json;

struct ResNetShape {
  bool bottleneck;
  std::array<int64_t, 4> blocks;
  int64_t width = 64;  // of a bottleneck's 3x3 convolution in the first stage
};

void add_convolution(Listing& layers, const std::string& number, int64_t channels, int64_t kernel_size,
                     int64_t stride) {
  layers.add("Conv2d", {{"name", "conv" + number},
                        {"out_channels", channels},
                        {"kernel_size", kernel_size},
                        {"stride", stride},
                        {"padding", kernel_size / 2},
                        {"bias", false}});
  layers.add("BatchNorm2d", {{"name", "bn" + number}});
}

/// `project`: the shortcut has a convolution.
Listing residual_block(const ResNetShape& shape, int64_t channels, int64_t stride, bool project) {
  Listing block;
  const int64_t width = shape.bottleneck ? channels * shape.width / 64 : channels;
  const int64_t wide = shape.bottleneck ? 4 * channels : channels;
  add_convolution(block, "1", width, shape.bottleneck ? 1 : 3, shape.bottleneck ? 1 : stride);
  block.add("ReLU", {{"name", "relu1"}});
  add_convolution(block, "2", shape.bottleneck ? width : wide, 3, shape.bottleneck ? stride : 1);
  if (shape.bottleneck) {
    block.add("ReLU", {{"name", "relu2"}});
    add_convolution(block, "3", wide, 1, 1);
  }
  if (project) {
    Listing shortcut;
    shortcut.add("Conv2d", {{"out_channels", wide}, {"kernel_size", 1}, {"stride", stride}, {"bias", false}});
    shortcut.add("BatchNorm2d");
    block.add(std::move(shortcut), "downsample", Names{"x"});
  }
  const std::string last = shape.bottleneck ? "bn3" : "bn2";
  block.add("Add", {{"name", "sum"}, {"inputs", {last, project ? "downsample" : "x"}}});
  block.add("ReLU", {{"name", "relu"}});
  return block;
}

template <const ResNetShape& kShape>
struct ResNet {
  std::optional<int64_t> num_classes = 1000;
  std::string stem = "imagenet";
  bool zero_init_residual = false;
  static void describe(Fields<ResNet>& f) {
    f.optional("num_classes", &ResNet::num_classes)
        .at_least(1)
        .doc("outputs of the last layer, fc; null: leave that layer out and return the features that it would read");
    f.optional("stem", &ResNet::stem)
        .one_of({"imagenet", "cifar"})
        .doc(
            "the first layers: imagenet has a 7x7 convolution with stride 2 and a pooling, cifar, for images of 32x32, "
            "a 3x3 convolution");
    f.optional("zero_init_residual", &ResNet::zero_init_residual)
        .doc("start with weights of 0 in each block's last normalization, so that blocks start as identities");
  }

  Layer build(const LayerInputs& in) const {
    in.require_dims(4, 4, "[N, C, H, W]");
    Listing model;
    const bool small = stem == "cifar";
    add_convolution(model, "1", 64, small ? 3 : 7, small ? 1 : 2);
    model.add("ReLU", {{"name", "relu"}});
    if (!small) model.add("MaxPool2d", {{"name", "maxpool"}, {"kernel_size", 3}, {"stride", 2}, {"padding", 1}});
    for (int64_t stage = 0; stage < 4; ++stage) {
      Listing blocks;
      for (int64_t i = 0; i < kShape.blocks[static_cast<size_t>(stage)]; ++i) {
        const bool project = i == 0 && (stage > 0 || kShape.bottleneck);
        blocks.add(residual_block(kShape, int64_t{64} << stage, i == 0 && stage > 0 ? 2 : 1, project));
      }
      model.add(std::move(blocks), "layer" + std::to_string(stage + 1));
    }
    model.add("AdaptiveAvgPool2d", {{"name", "avgpool"}, {"output_size", 1}});
    model.add("Flatten", {{"name", "flatten"}});
    if (num_classes) model.add("Linear", {{"name", "fc"}, {"out_features", *num_classes}});
    const auto graph = model.build(in);
    draw_weights(*graph, draw({{"type", "KaimingNormal"}, {"mode", "fan_out"}, {"nonlinearity", "relu"}}), nullptr);
    if (zero_init_residual) zero_last_norms(*graph);
    return whole_model(graph);
  }

 private:
  static void zero_last_norms(const Graph& graph) {
    const std::string last = kShape.bottleneck ? "bn3.weight" : "bn2.weight";
    const c10::AutoGradMode no_gradients(false);
    for (const auto& item : graph.named_parameters()) {
      if (item.key().ends_with("." + last)) item.value().zero_();
    }
  }
};

constexpr ResNetShape kResNet18 = {false, {2, 2, 2, 2}};
constexpr ResNetShape kResNet34 = {false, {3, 4, 6, 3}};
constexpr ResNetShape kResNet50 = {true, {3, 4, 6, 3}};
constexpr ResNetShape kResNet101 = {true, {3, 4, 23, 3}};
constexpr ResNetShape kResNet152 = {true, {3, 8, 36, 3}};
constexpr ResNetShape kWideResNet50 = {true, {3, 4, 6, 3}, 128};
constexpr ResNetShape kWideResNet101 = {true, {3, 4, 23, 3}, 128};

}  // namespace

void add_resnets(LayerRegistry& layers) {
  layers.add<ResNet<kResNet18>>("ResNet18", "residual net of 18 layers, [N, C, H, W] to [N, num_classes]");
  layers.add<ResNet<kResNet34>>("ResNet34", "residual net of 34 layers");
  layers.add<ResNet<kResNet50>>("ResNet50", "residual net of 50 layers, in bottlenecks");
  layers.add<ResNet<kResNet101>>("ResNet101", "residual net of 101 layers, in bottlenecks");
  layers.add<ResNet<kResNet152>>("ResNet152", "residual net of 152 layers, in bottlenecks");
  layers.add<ResNet<kWideResNet50>>("WideResNet50_2", "ResNet50 with bottlenecks twice as wide");
  layers.add<ResNet<kWideResNet101>>("WideResNet101_2", "ResNet101 with bottlenecks twice as wide");
}

}  // namespace trainrun
