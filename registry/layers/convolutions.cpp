#include <torch/nn/modules/conv.h>

#include <algorithm>

#include "registry/layer.h"

namespace trainrun {
namespace {

/// torch.nn.Conv2d. LibTorch 2.11 keeps the sizes that 'same' adds with the first dimension first; they are used last
/// one first.
struct Conv2dModule : torch::nn::Conv2dImpl {
  explicit Conv2dModule(const torch::nn::Conv2dOptions& options) : Conv2dImpl(options) {
    std::vector<int64_t>& added = _reversed_padding_repeated_twice;  // [left, right, top, bottom]
    if (std::holds_alternative<torch::enumtype::kSame>(options.padding()))
      std::rotate(added.begin(), added.begin() + 2, added.end());
  }
};

struct Conv2d {
  int64_t out_channels = 0;
  Pair kernel_size;
  Pair stride = 1;
  std::variant<Pair, std::string> padding = Pair(0);
  Pair dilation = 1;
  int64_t groups = 1;
  bool bias = true;
  std::string padding_mode = "zeros";
  std::optional<int64_t> in_channels;

  static void describe(Fields<Conv2d>& f) {
    f.required("out_channels", &Conv2d::out_channels).at_least(1).doc("number of feature maps made");
    f.required("kernel_size", &Conv2d::kernel_size).at_least(1).doc("height and width of the window");
    f.optional("stride", &Conv2d::stride).at_least(1).doc("step of the window");
    f.optional("padding", &Conv2d::padding)
        .at_least(0)
        .one_of({"valid", "same"})
        .doc("rows and columns added at each border");
    f.optional("dilation", &Conv2d::dilation).at_least(1).doc("distance between the window's points");
    f.optional("groups", &Conv2d::groups).at_least(1).doc("groups of channels that do not see each other");
    f.optional("bias", &Conv2d::bias).doc("adds a learned number to each feature map");
    f.optional("padding_mode", &Conv2d::padding_mode)
        .one_of({"zeros", "reflect", "replicate", "circular"})
        .doc("what the added rows and columns hold");
    f.optional("in_channels", &Conv2d::in_channels).at_least(1).doc("number of channels that flow in; inferred");
    f.relation(nlohmann::json::parse(
        R"({"if": {"required": ["padding"], "properties": {"padding": {"const": "same"}}},
            "then": {"properties": {"stride": {"maximum": 1, "items": {"maximum": 1}}}}})"));
  }

  void check(Checker& checker) const {
    if (out_channels % groups != 0) checker.fail("groups", "must divide out_channels, " + std::to_string(out_channels));
    const bool strided = stride[0] != 1 || stride[1] != 1;
    if (padding == decltype(padding)("same") && strided) checker.fail("padding", "'same' needs a stride of 1");
  }

  Layer build(const LayerInputs& in) const {
    in.require_dims(4, 4, "[N, C, H, W]");
    const int64_t channels = in.infer("in_channels", in_channels, 1);
    if (channels % groups != 0) {
      throw LayerError("groups is " + std::to_string(groups) + ", which does not divide the " +
                       std::to_string(channels) + " channels that flow in");
    }
    auto options = torch::nn::Conv2dOptions(channels, out_channels, kernel_size);
    options.stride(stride).dilation(dilation).groups(groups).bias(bias);
    if (padding_mode == "reflect") options.padding_mode(torch::kReflect);
    if (padding_mode == "replicate") options.padding_mode(torch::kReplicate);
    if (padding_mode == "circular") options.padding_mode(torch::kCircular);
    if (const auto* sizes = std::get_if<Pair>(&padding)) {
      options.padding(*sizes);
    } else if (std::get<std::string>(padding) == "same") {
      options.padding(torch::kSame);
    } else {
      options.padding(torch::kValid);
    }
    return layer_of(torch::nn::ModuleHolder<Conv2dModule>(std::make_shared<Conv2dModule>(options)));
  }
};

}  // namespace

void add_convolutions(LayerRegistry& layers) { layers.add<Conv2d>("Conv2d", "2-D convolution over [N, C, H, W]"); }

}  // namespace trainrun
