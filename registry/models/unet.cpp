#include "registry/models/listing.h"

// Source: Ronneberger et al. 2015, "U-Net: Convolutional Networks for Biomedical Image Segmentation"; with padding and
// batch normalization, so that the output is as large as the input.

namespace trainrun {
namespace {

using nlohmann::json;

/// Two convolutions that keep the size.
Listing double_convolution(int64_t channels) {
  Listing layers;
  for (const std::string number : {"1", "2"}) {
    layers.add(
        "Conv2d",
        {{"name", "conv" + number}, {"out_channels", channels}, {"kernel_size", 3}, {"padding", 1}, {"bias", false}});
    layers.add("BatchNorm2d", {{"name", "bn" + number}});
    layers.add("ReLU", {{"name", "relu" + number}});
  }
  return layers;
}

struct UNet {
  int64_t num_classes = 1;
  int64_t channels = 64;
  int64_t depth = 4;
  static void describe(Fields<UNet>& f) {
    f.required("num_classes", &UNet::num_classes).at_least(1).doc("channels of the output: a score for each class");
    f.optional("channels", &UNet::channels).at_least(1).doc("channels at full size; twice as many after each halving");
    f.optional("depth", &UNet::depth).at_least(1).at_most(10).doc("how many times the image is halved");
  }

  Layer build(const LayerInputs& in) const {
    in.require_dims(4, 4, "[N, C, H, W]");
    const int64_t factor = int64_t{1} << depth;
    if (in.shape()[2] % factor != 0 || in.shape()[3] % factor != 0) {
      throw LayerError("it halves the image " + std::to_string(depth) +
                       " times, so height and width must be multiples " + "of " + std::to_string(factor) +
                       ", but the input is " + shape_text(in.shape()));
    }
    const auto name = [](const std::string& part, int64_t level) { return part + std::to_string(level); };
    Listing model;
    for (int64_t level = 0; level < depth; ++level) {
      model.add(double_convolution(channels << level), name("down", level));
      model.add("MaxPool2d", {{"name", name("pool", level)}, {"kernel_size", 2}});
    }
    model.add(double_convolution(channels << depth), "bottom");
    for (int64_t level = depth - 1; level >= 0; --level) {
      const json parameters = {
          {"name", name("up", level)}, {"out_channels", channels << level}, {"kernel_size", 2}, {"stride", 2}};
      model.add("ConvTranspose2d", parameters);
      model.add("Concat", {{"name", name("skip", level)}, {"inputs", {name("down", level), name("up", level)}}});
      model.add(double_convolution(channels << level), name("decode", level));
    }
    model.add("Conv2d", {{"name", "head"}, {"out_channels", num_classes}, {"kernel_size", 1}});
    return whole_model(model.build(in));
  }
};

}  // namespace

void add_unets(LayerRegistry& layers) {
  layers.add<UNet>("UNet", "scores for each pixel, from features of all sizes, [N, C, H, W] to [N, num_classes, H, W]");
}

}  // namespace trainrun
