#include "runner/interop/vision_names.h"

#include <ATen/core/Tensor.h>

#include <map>
#include <vector>

#include "registry/language/error.h"

namespace trainrun {
namespace {

using nlohmann::json;
using Parts = std::vector<std::string>;
using Shape = std::array<int64_t, 3>;  // of an image

constexpr const char* kResNet = "ResNetForImageClassification";
constexpr const char* kViT = "ViTForImageClassification";
constexpr const char* kConvNeXt = "ConvNextForImageClassification";
constexpr const char* kMobileNet = "MobileNetV2ForImageClassification";
constexpr double kNormEps = 1e-6;  // of torchvision's ViT and ConvNeXt

Parts parts_of(const std::string& name) {
  Parts parts(1);
  for (const char c : name) {
    if (c == '.') {
      parts.emplace_back();
    } else {
      parts.back() += c;
    }
  }
  return parts;
}

/// Throws where a parameter has another value than the one that transformers' class knows.
void require(const Component<LayerKind>& layer, const char* parameter, const json& known) {
  const json& own = layer.attributes.at(parameter);
  if (own == known) return;
  throw Error("export: " + layer.type + ": transformers' model has no " + parameter + ": " + own.dump() +
              "; write --format safetensors for the weights under torchvision's names, or --format torchscript");
}

// --- ResNet

struct ResNetSizes {
  json depths;
  bool has_bottlenecks;
};

std::optional<VisionModel> resnet(const Component<LayerKind>& layer, const Shape& shape) {
  static const std::map<std::string, ResNetSizes> all = {{"ResNet18", {{2, 2, 2, 2}, false}},
                                                         {"ResNet34", {{3, 4, 6, 3}, false}},
                                                         {"ResNet50", {{3, 4, 6, 3}, true}},
                                                         {"ResNet101", {{3, 4, 23, 3}, true}},
                                                         {"ResNet152", {{3, 8, 36, 3}, true}}};
  const auto found = all.find(layer.type);
  if (found == all.end()) return std::nullopt;
  require(layer, "stem", "imagenet");
  const bool wide = found->second.has_bottlenecks;
  return VisionModel{kResNet,
                     {{"model_type", "resnet"},
                      {"num_channels", shape[0]},
                      {"embedding_size", 64},
                      {"hidden_sizes", wide ? json{256, 512, 1024, 2048} : json{64, 128, 256, 512}},
                      {"depths", found->second.depths},
                      {"layer_type", wide ? "bottleneck" : "basic"},
                      {"hidden_act", "relu"},
                      {"downsample_in_first_stage", false},
                      {"downsample_in_bottleneck", false}}};
}

/// "conv2" is convolution 1 of a block's, "bn2" its normalization.
std::string of_pair(const std::string& own) { return own.starts_with("conv") ? "convolution" : "normalization"; }

std::string resnet_name(const Parts& name) {
  const std::string& last = name.back();
  if (name[0] == "fc") return "classifier.1." + last;
  if (!name[0].starts_with("layer")) return "resnet.embedder.embedder." + of_pair(name[0]) + "." + last;
  const std::string stage = std::to_string(name[0].back() - '1');
  const std::string block = "resnet.encoder.stages." + stage + ".layers." + name[1] + ".";
  if (name[2] == "downsample") {
    return block + "shortcut." + (name[3] == "0" ? "convolution." : "normalization.") + last;
  }
  return block + "layer." + std::to_string(name[2].back() - '1') + "." + of_pair(name[2]) + "." + last;
}

// --- Vision Transformer

std::optional<VisionModel> vit(const Component<LayerKind>& layer, const Shape& shape) {
  const bool is_base = layer.type == "ViT_B_16";
  if (!is_base && layer.type != "ViT_S_16") return std::nullopt;
  const int64_t features = is_base ? 768 : 384;
  return VisionModel{kViT,
                     {{"model_type", "vit"},
                      {"num_channels", shape[0]},
                      {"image_size", shape[1] == shape[2] ? json(shape[1]) : json{shape[1], shape[2]}},
                      {"patch_size", 16},
                      {"hidden_size", features},
                      {"num_hidden_layers", 12},
                      {"num_attention_heads", is_base ? 12 : 6},
                      {"intermediate_size", 4 * features},
                      {"hidden_act", "gelu"},
                      {"hidden_dropout_prob", layer.attributes.at("dropout")},
                      {"attention_probs_dropout_prob", layer.attributes.at("attention_dropout")},
                      {"layer_norm_eps", kNormEps},
                      {"qkv_bias", true}}};
}

std::string vit_name(const Parts& name) {
  const std::string& last = name.back();
  if (name[0] == "class_token") return "vit.embeddings.cls_token";
  if (name[0] == "conv_proj") return "vit.embeddings.patch_embeddings.projection." + last;
  if (name[0] == "heads") return "classifier." + last;
  if (last == "pos_embedding") return "vit.embeddings.position_embeddings";
  if (name[1] == "ln") return "vit.layernorm." + last;
  const std::string layer = "vit.encoder.layer." + name[2].substr(std::string("encoder_layer_").size()) + ".";
  if (name[3] == "ln_1") return layer + "layernorm_before." + last;
  if (name[3] == "ln_2") return layer + "layernorm_after." + last;
  if (name[3] == "self_attention") return layer + "attention.output.dense." + last;
  return layer + (name[4] == "0" ? "intermediate.dense." : "output.dense.") + last;
}

/// What torchvision has as one matrix is three in transformers.
void add_vit(const std::string& name, const at::Tensor& tensor, NamedTensors& renamed) {
  const Parts parts = parts_of(name);
  if (!parts.back().starts_with("in_proj_")) {
    renamed.emplace_back(vit_name(parts), tensor);
    return;
  }
  const std::string number = parts[2].substr(std::string("encoder_layer_").size());
  const std::string kind = parts.back().substr(std::string("in_proj_").size());
  const std::vector<at::Tensor> thirds = tensor.chunk(3, 0);
  size_t i = 0;
  for (const char* role : {"query", "key", "value"}) {
    std::string own = "vit.encoder.layer." + number + ".attention.attention." + role + "." + kind;
    renamed.emplace_back(std::move(own), thirds[i++].contiguous());
  }
}

// --- ConvNeXt

std::optional<VisionModel> convnext(const Component<LayerKind>& layer, const Shape& shape) {
  if (layer.type != "ConvNeXtTiny") return std::nullopt;
  return VisionModel{kConvNeXt,
                     {{"model_type", "convnext"},
                      {"num_channels", shape[0]},
                      {"image_size", shape[1]},
                      {"patch_size", 4},
                      {"num_stages", 4},
                      {"hidden_sizes", {96, 192, 384, 768}},
                      {"depths", {3, 3, 9, 3}},
                      {"hidden_act", "gelu"},
                      {"layer_norm_eps", kNormEps},
                      {"layer_scale_init_value", layer.attributes.at("layer_scale")},
                      {"drop_path_rate", layer.attributes.at("stochastic_depth_prob")}}};
}

std::string convnext_name(const Parts& name) {
  const std::string& last = name.back();
  if (name[0] == "classifier") return (name[1] == "0" ? "convnext.layernorm." : "classifier.") + last;
  const int64_t number = std::stoll(name[1]);
  if (number == 0) {
    return std::string("convnext.embeddings.") + (name[2] == "0" ? "patch_embeddings." : "layernorm.") + last;
  }
  const std::string stage = "convnext.encoder.stages." + std::to_string(number / 2) + ".";
  if (number % 2 == 0) return stage + "downsampling_layer." + name[2] + "." + last;
  const std::string block = "convnext.encoder.stages." + std::to_string((number - 1) / 2) + ".layers." + name[2] + ".";
  if (last == "layer_scale") return block + "layer_scale_parameter";
  static const std::map<std::string, std::string> layers = {
      {"0", "dwconv."}, {"2", "layernorm."}, {"3", "pwconv1."}, {"5", "pwconv2."}};
  return block + layers.at(name[4]) + last;
}

// --- MobileNetV2

std::optional<VisionModel> mobilenet(const Component<LayerKind>& layer, const Shape& shape) {
  if (layer.type != "MobileNetV2") return std::nullopt;
  require(layer, "width_mult", 1.0);
  return VisionModel{kMobileNet,
                     {{"model_type", "mobilenet_v2"},
                      {"num_channels", shape[0]},
                      {"image_size", shape[1]},
                      {"depth_multiplier", 1.0},
                      {"expand_ratio", 6.0},
                      {"output_stride", 32},
                      {"first_layer_is_expansion", true},
                      {"finegrained_output", true},
                      {"hidden_act", "relu6"},
                      {"tf_padding", false},
                      {"classifier_dropout_prob", layer.attributes.at("dropout")},
                      {"layer_norm_eps", 1e-5}}};
}

std::string mobilenet_name(const Parts& name) {
  const std::string& last = name.back();
  if (name[0] == "classifier") return "classifier." + last;
  constexpr int64_t kLast = 18;
  const int64_t number = std::stoll(name[1]);
  const auto within = [&](const std::string& place) {
    return std::string(place == "0" ? ".convolution." : ".normalization.") + last;
  };
  if (number == 0) return "mobilenet_v2.conv_stem.first_conv" + within(name[2]);
  if (number == kLast) return "mobilenet_v2.conv_1x1" + within(name[2]);
  Parts layers = {"expand_1x1", "conv_3x3", "reduce_1x1"};
  if (number == 1) layers.erase(layers.begin());
  const std::string block =
      number == 1 ? "mobilenet_v2.conv_stem." : "mobilenet_v2.layer." + std::to_string(number - 2) + ".";
  const size_t place = std::stoull(name[3]);  // the last convolution and its normalization have a number each
  if (place + 1 < layers.size()) return block + layers[place] + within(name[4]);
  return block + layers.back() + within(place + 1 == layers.size() ? "0" : "1");
}

}  // namespace

std::optional<VisionModel> vision_model(const Component<LayerKind>& layer, const Shape& shape) {
  for (const auto& family : {resnet, vit, convnext, mobilenet}) {
    auto found = family(layer, shape);
    if (!found) continue;
    if (layer.attributes.at("num_classes").is_null()) {
      throw Error("export: " + layer.type + " with num_classes: null has no classes, and --format huggingface writes " +
                  "a classifier; write --format safetensors for the weights under torchvision's names");
    }
    found->config["architectures"] = json::array({found->architecture});
    found->config["dtype"] = "float32";
    return found;
  }
  return std::nullopt;
}

NamedTensors vision_tensors(const std::string& architecture, const NamedTensors& tensors) {
  NamedTensors renamed;
  for (const auto& [name, tensor] : tensors) {
    const Parts parts = parts_of(name);
    if (architecture == kResNet) {
      renamed.emplace_back(resnet_name(parts), tensor);
    } else if (architecture == kViT) {
      add_vit(name, tensor, renamed);
    } else if (architecture == kConvNeXt) {
      const bool is_scale = parts.back() == "layer_scale";  // [C, 1, 1] in torchvision
      renamed.emplace_back(convnext_name(parts), is_scale ? tensor.flatten() : tensor);
    } else {
      renamed.emplace_back(mobilenet_name(parts), tensor);
    }
  }
  return renamed;
}

}  // namespace trainrun
