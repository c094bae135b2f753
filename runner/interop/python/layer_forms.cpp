#include "runner/interop/python/layer_forms.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <map>
#include <set>

#include "runner/interop/python/layer_texts.h"
#include "runner/interop/python/model_forms.h"

namespace trainrun::python {
namespace {

using nlohmann::json;

// --- Modules of torch.nn, which have trainrun's names and parameters

const std::set<std::string>& torch_modules() {
  static const std::set<std::string> names = [] {
    std::set<std::string> all = {"AdaptiveLogSoftmaxWithLoss",
                                 "AlphaDropout",
                                 "Bilinear",
                                 "CELU",
                                 "ChannelShuffle",
                                 "CosineSimilarity",
                                 "ELU",
                                 "Embedding",
                                 "FeatureAlphaDropout",
                                 "Flatten",
                                 "Fold",
                                 "FractionalMaxPool2d",
                                 "FractionalMaxPool3d",
                                 "GELU",
                                 "GLU",
                                 "GroupNorm",
                                 "GRU",
                                 "GRUCell",
                                 "Hardshrink",
                                 "Hardsigmoid",
                                 "Hardswish",
                                 "Hardtanh",
                                 "Identity",
                                 "LayerNorm",
                                 "LeakyReLU",
                                 "Linear",
                                 "LocalResponseNorm",
                                 "LogSigmoid",
                                 "LogSoftmax",
                                 "LSTM",
                                 "LSTMCell",
                                 "Mish",
                                 "PairwiseDistance",
                                 "PixelShuffle",
                                 "PixelUnshuffle",
                                 "PReLU",
                                 "ReLU",
                                 "ReLU6",
                                 "RMSNorm",
                                 "RNN",
                                 "RNNCell",
                                 "RReLU",
                                 "SELU",
                                 "Sigmoid",
                                 "SiLU",
                                 "Softmax",
                                 "Softmin",
                                 "Softplus",
                                 "Softshrink",
                                 "Softsign",
                                 "Tanh",
                                 "Tanhshrink",
                                 "Threshold",
                                 "TransformerEncoderLayer",
                                 "TransformerDecoderLayer",
                                 "Unflatten",
                                 "Unfold",
                                 "Upsample",
                                 "Dropout",
                                 "MultiheadAttention",
                                 "EmbeddingBag"};
    for (const std::string dims : {"1d", "2d", "3d"}) {
      for (const std::string kind : {"AdaptiveAvgPool", "AdaptiveMaxPool", "AvgPool", "BatchNorm", "CircularPad",
                                     "ConstantPad", "Conv", "ConvTranspose", "Dropout", "InstanceNorm", "LPPool",
                                     "MaxPool", "MaxUnpool", "ReflectionPad", "ReplicationPad", "ZeroPad"}) {
        all.insert(kind + dims);
      }
    }
    return all;
  }();
  return names;
}

/// Parameters that are written without their names, in this order.
constexpr std::array kPositional = {"in_features",    "in1_features",
                                    "in2_features",   "out_features",
                                    "in_channels",    "out_channels",
                                    "num_features",   "normalized_shape",
                                    "num_groups",     "num_channels",
                                    "num_embeddings", "embedding_dim",
                                    "input_size",     "hidden_size",
                                    "embed_dim",      "d_model",
                                    "num_heads",      "nhead",
                                    "norm_type",      "kernel_size",
                                    "output_size",    "p",
                                    "upscale_factor", "downscale_factor"};

/// The size of its input that a parameter is where the recipe leaves it out.
const std::map<std::string, int>& inferred_dims() {
  static const std::map<std::string, int> dims = {
      {"in_features", -1}, {"in_channels", 1}, {"num_features", 1}, {"num_channels", 1},  {"normalized_shape", -1},
      {"input_size", -1},  {"embed_dim", 2},   {"d_model", 2},      {"in1_features", -1}, {"in2_features", -1}};
  return dims;
}

json inferred(const Graph::Node& node, const std::string& parameter) {
  const auto dim = inferred_dims().find(parameter);
  if (dim == inferred_dims().end()) return nullptr;
  const auto& shape = node.input_shapes.at(parameter == "in2_features" ? 1 : 0);
  return dim->second < 0 ? shape.back() : shape.at(static_cast<size_t>(dim->second));
}

/// A list of one number is that number, as people write it.
json simplified(const json& value) {
  return value.is_array() && value.size() == 1 && value[0].is_number() ? value[0] : value;
}

Expression module_of(const Graph::Node& node, const std::string& callee, const LayerRegistry& registry,
                     const std::set<std::string>& without = {}) {
  std::vector<Expression::Argument> positional;
  std::vector<Expression::Argument> named;
  const auto* entry = registry.find(node.type);
  std::map<std::string, Expression::Argument> found;
  for (const Parameter& parameter : entry->parameters) {
    if (without.contains(parameter.name) || !node.attributes.contains(parameter.name)) continue;
    json value = node.attributes[parameter.name];
    if (value.is_null()) value = inferred(node, parameter.name);
    const bool is_list = parameter.name == "unflattened_size";
    Expression::Argument argument{parameter.name, Expression::code(literal(is_list ? value : simplified(value)))};
    argument.is_default = !parameter.required && value == parameter.default_value;
    found[parameter.name] = argument;
    if (std::find(kPositional.begin(), kPositional.end(), parameter.name) == kPositional.end()) {
      named.push_back(std::move(argument));
    }
  }
  for (const char* name : kPositional) {
    const auto one = found.find(name);
    if (one == found.end()) continue;
    one->second.is_positional = true;
    positional.push_back(one->second);
  }
  positional.insert(positional.end(), named.begin(), named.end());
  return Expression::call(callee, std::move(positional));
}

LayerForm module_form(const Graph::Node& node, const LayerRegistry& registry,
                      const std::set<std::string>& without = {}) {
  LayerForm form;
  form.module = module_of(node, "nn." + node.type, registry, without);
  if (node.inputs.size() > 1) form.call = "{module}({all})";
  return form;
}

// --- Layers that are expressions

std::string infix(const Graph::Node& node, const std::string& sign) {
  std::string text;
  for (size_t i = 0; i < node.inputs.size(); ++i) text += (i == 0 ? "{" : " " + sign + " {") + std::to_string(i) + "}";
  const json& other = node.attributes.at("other");
  return other.is_null() ? text : text + " " + sign + " " + literal(other);
}

std::string along(const Graph::Node& node, const std::string& method) {
  const bool keeps = node.attributes.at("keepdim").get<bool>();
  return "{0}." + method + "(" + literal(simplified(node.attributes.at("dim"))) + (keeps ? ", keepdim=True" : "") + ")";
}

LayerForm expression(std::string call) {
  LayerForm form;
  form.module.reset();
  form.call = std::move(call);
  return form;
}

std::string extremum(const Graph::Node& node, const std::string& name) {
  if (!node.attributes.at("dim").is_null()) return along(node, name);
  std::string text = "{0}";
  for (size_t i = 1; i < node.inputs.size(); ++i)
    text = "torch." + name + "imum(" + text + ", {" + std::to_string(i) + "})";
  return text;
}

std::string reshaped(const Graph::Node& node) {
  std::string sizes;
  for (const json& size : node.attributes.at("shape")) sizes += ", " + size.dump();
  return "{0}.reshape({0}.size(0)" + sizes + ")";
}

std::string listed(const json& items) {
  std::string text;
  for (const json& item : items) text += (text.empty() ? "" : ", ") + item.dump();
  return text;
}

std::string squeezed(const Graph::Node& node) {
  const json& dim = node.attributes.at("dim");
  if (!dim.is_null()) return "{0}.squeeze(" + literal(dim) + ")";
  json dims = json::array();
  for (size_t i = 1; i < node.input_shapes[0].size(); ++i) dims.push_back(i);
  return "{0}.squeeze(" + literal(dims) + ")";
}

std::string clamped(const Graph::Node& node) {
  std::string text;
  for (const std::string limit : {"min", "max"}) {
    const json& value = node.attributes.at(limit);
    if (!value.is_null()) text += (text.empty() ? "" : ", ") + limit + "=" + literal(value);
  }
  return "{0}.clamp(" + text + ")";
}

std::string selected(const Graph::Node& node) {
  const auto dim = node.attributes.at("dim").get<int64_t>();
  const std::string index = node.attributes.at("index").dump();
  if (dim < 0 || dim > 3) return "{0}.select(" + std::to_string(dim) + ", " + index + ")";
  std::string text = "{0}[";
  for (int64_t i = 0; i < dim; ++i) text += ":, ";
  return text + index + "]";
}

std::string pooled(const Graph::Node& node) {
  const std::string mode = node.attributes.at("mode").get<std::string>();
  if (mode == "cls") return "{0}[torch.arange({0}.size(0)), {1}.int().argmax(1)]";
  if (mode == "max") return "{0}.masked_fill({1}.eq(0).unsqueeze(2), float(\"-inf\")).amax(1)";
  return "({0} * {1}.unsqueeze(2)).sum(1) / {1}.sum(1, keepdim=True).clamp(min=1e-9)";
}

using WriteExpression = std::string (*)(const Graph::Node&);
const std::map<std::string, WriteExpression>& expressions() {
  using Node = Graph::Node;
  static const std::map<std::string, WriteExpression> table = {
      {"Add", [](const Node& n) { return infix(n, "+"); }},
      {"Sub", [](const Node& n) { return infix(n, "-"); }},
      {"Mul", [](const Node& n) { return infix(n, "*"); }},
      {"Div", [](const Node& n) { return infix(n, "/"); }},
      {"Pow",
       [](const Node& n) {
         const json& exponent = n.attributes.at("exponent");
         return "{0} ** " + (exponent.is_null() ? "{1}" : literal(exponent));
       }},
      {"MatMul", [](const Node&) { return std::string("{0} @ {1}"); }},
      {"Clamp", clamped},
      {"Abs", [](const Node&) { return std::string("{0}.abs()"); }},
      {"Exp", [](const Node&) { return std::string("{0}.exp()"); }},
      {"Log", [](const Node&) { return std::string("{0}.log()"); }},
      {"Sqrt", [](const Node&) { return std::string("{0}.sqrt()"); }},
      {"Concat", [](const Node& n) { return "torch.cat([{all}], " + n.attributes.at("dim").dump() + ")"; }},
      {"Stack", [](const Node& n) { return "torch.stack([{all}], " + n.attributes.at("dim").dump() + ")"; }},
      {"Mean", [](const Node& n) { return along(n, "mean"); }},
      {"Sum", [](const Node& n) { return along(n, "sum"); }},
      {"Max", [](const Node& n) { return extremum(n, "max"); }},
      {"Min", [](const Node& n) { return extremum(n, "min"); }},
      {"Reshape", reshaped},
      {"Select", selected},
      {"Permute", [](const Node& n) { return "{0}.permute(" + listed(n.attributes.at("dims")) + ")"; }},
      {"Transpose",
       [](const Node& n) {
         return "{0}.transpose(" + n.attributes.at("dim0").dump() + ", " + n.attributes.at("dim1").dump() + ")";
       }},
      {"Squeeze", squeezed},
      {"Unsqueeze", [](const Node& n) { return "{0}.unsqueeze(" + n.attributes.at("dim").dump() + ")"; }},
      {"Split",
       [](const Node& n) {
         return "{0}.split(" + literal(n.attributes.at("split_size_or_sections")) + ", " +
                n.attributes.at("dim").dump() + ")";
       }},
      {"Chunk",
       [](const Node& n) {
         return "{0}.chunk(" + n.attributes.at("chunks").dump() + ", " + n.attributes.at("dim").dump() + ")";
       }},
      {"L2Normalize",
       [](const Node& n) {
         return "nn.functional.normalize({0}, dim=" + n.attributes.at("dim").dump() +
                ", eps=" + n.attributes.at("eps").dump() + ")";
       }},
      {"TokenPooling", pooled},
  };
  return table;
}

// --- Layers that have a small class in the file

LayerForm positional_encoding(const Graph::Node& node, const LayerRegistry&, SourceFile& file) {
  const bool batch_first = node.attributes.at("batch_first").get<bool>();
  const bool is_learned = node.attributes.at("encoding") == "learned";
  if (!is_learned) file.import("import math");
  std::string text = is_learned ? kLearnedPositions : kSinusoidalPositions;
  text = replaced(replaced(text, "TIME", batch_first ? "1" : "0"), "AXES", batch_first ? "" : ".unsqueeze(1)");
  std::string name = "PositionalEncoding";
  file.define(name, text);
  LayerForm form;
  Expression::Argument dropout{"dropout", Expression::code(literal(node.attributes.at("dropout")))};
  dropout.is_default = node.attributes.at("dropout").get<double>() == 0;
  form.module = Expression::call(name, {{"max_len", Expression::code(node.attributes.at("max_len").dump()), true},
                                        {"d_model", Expression::code(std::to_string(node.input_shapes[0][2])), true},
                                        dropout});
  return form;
}

LayerForm attention(const Graph::Node& node, const LayerRegistry& registry, SourceFile& file) {
  std::set<std::string> without = {"is_causal"};
  for (const std::string name : {"kdim", "vdim"}) {
    if (node.attributes.at(name).is_null()) without.insert(name);
  }
  LayerForm form = module_form(node, registry, without);
  const bool is_causal = node.attributes.at("is_causal").get<bool>();
  const std::string inputs = node.inputs.size() == 1 ? "{0}, {0}, {0}" : "{0}, {1}, {2}";
  std::string more;
  if (is_causal) {
    const std::string time = node.attributes.at("batch_first").get<bool>() ? "1" : "0";
    more = ", attn_mask=causal_mask({0}.size(" + time + "), {0}.device), is_causal=True";
    file.define("causal_mask",
                "def causal_mask(length, device):\n"
                "    return nn.Transformer.generate_square_subsequent_mask(length, device=device)\n");
  }
  if (node.inputs.size() == 4) more += ", key_padding_mask={3} == 0";
  if (node.inputs.size() == 1 || node.inputs.size() == 3 || node.inputs.size() == 4) {
    form.call = "{module}(" + inputs + more + ", need_weights=False)[0]";
  }
  return form;
}

LayerForm recurrent(const Graph::Node& node, const LayerRegistry& registry, SourceFile&) {
  LayerForm form = module_form(node, registry);
  form.first = "[0]";
  if (node.type == "LSTM") {
    form.targets = "{0}, ({1}, {2})";
    if (node.inputs.size() == 3) form.call = "{module}({0}, ({1}, {2}))";
  }
  return form;
}

LayerForm encoder_layer(const Graph::Node& node, const LayerRegistry& registry, SourceFile& file) {
  LayerForm form = module_form(node, registry, {"is_causal", "tgt_is_causal", "memory_is_causal"});
  const bool is_decoder = node.type == "TransformerDecoderLayer";
  if (node.attributes.value(is_decoder ? "tgt_is_causal" : "is_causal", false)) {
    const std::string time = node.attributes.at("batch_first").get<bool>() ? "1" : "0";
    const std::string mask = is_decoder ? "tgt_mask" : "src_mask";
    file.define("causal_mask",
                "def causal_mask(length, device):\n"
                "    return nn.Transformer.generate_square_subsequent_mask(length, device=device)\n");
    form.call = "{module}({all}, " + mask + "=causal_mask({0}.size(" + time + "), {0}.device)" +
                (is_decoder ? ", tgt_is_causal=True)" : ", is_causal=True)");
  } else if (!is_decoder && node.inputs.size() == 2) {
    form.call = "{module}({0}, src_key_padding_mask={1} == 0)";
  }
  return form;
}

LayerForm sampled(const Graph::Node&, const LayerRegistry&, SourceFile& file) {
  file.define("GaussianSample", kGaussianSample);
  LayerForm form;
  form.module = Expression::call("GaussianSample");
  form.call = "{module}({all})";
  return form;
}

LayerForm layer_norm_2d(const Graph::Node& node, const LayerRegistry& registry, SourceFile& file) {
  file.define("LayerNorm2d", kLayerNorm2d);
  LayerForm form;
  form.module = module_of(node, "LayerNorm2d", registry);
  return form;
}

LayerForm stochastic_depth(const Graph::Node& node, const LayerRegistry& registry, SourceFile& file) {
  file.import("from torchvision.ops import StochasticDepth");
  LayerForm form;
  form.module = module_of(node, "StochasticDepth", registry);
  for (auto& argument : form.module->arguments) argument.is_default = false;
  return form;
}

LayerForm transposed_linear(const Graph::Node& node, const LayerRegistry& registry, SourceFile& file) {
  if (!node.attributes.at("bias").get<bool>()) {
    file.refuse(node.place, node.path, "a TransposedLinear without a bias is not written; use Linear");
  }
  file.define("TransposedLinear", kTransposedLinear);
  LayerForm form;
  form.module = module_of(node, "TransposedLinear", registry, {"bias"});
  return form;
}

using WriteForm = LayerForm (*)(const Graph::Node&, const LayerRegistry&, SourceFile&);
const std::map<std::string, WriteForm>& forms() {
  static const std::map<std::string, WriteForm> table = {{"PositionalEncoding", positional_encoding},
                                                         {"MultiheadAttention", attention},
                                                         {"RNN", recurrent},
                                                         {"GRU", recurrent},
                                                         {"LSTM", recurrent},
                                                         {"TransformerEncoderLayer", encoder_layer},
                                                         {"TransformerDecoderLayer", encoder_layer},
                                                         {"GaussianSample", sampled},
                                                         {"LayerNorm2d", layer_norm_2d},
                                                         {"StochasticDepth", stochastic_depth},
                                                         {"TransposedLinear", transposed_linear},
                                                         {"ResNet18", torchvision_model},
                                                         {"ResNet34", torchvision_model},
                                                         {"ResNet50", torchvision_model},
                                                         {"ResNet101", torchvision_model},
                                                         {"ResNet152", torchvision_model},
                                                         {"WideResNet50_2", torchvision_model},
                                                         {"WideResNet101_2", torchvision_model}};
  return table;
}

/// A whole model that is not torchvision's as it is: its parts are written out.
bool is_changed(const Graph::Node& node) {
  return node.attributes.value("stem", std::string("imagenet")) != "imagenet" ||
         (node.attributes.contains("num_classes") && node.attributes["num_classes"].is_null());
}

}  // namespace

bool is_repetition(const Graph::Node& node) { return node.layer.graph && node.attributes.empty(); }

std::optional<LayerForm> form_of(const Graph::Node& node, const std::vector<std::string>& inputs,
                                 const LayerRegistry& registry, SourceFile& file) {
  if (is_repetition(node)) return std::nullopt;
  if (auto form = transformers_model(node, inputs, file)) return form;
  if (const auto found = forms().find(node.type); found != forms().end() && !is_changed(node)) {
    return found->second(node, registry, file);
  }
  if (const auto found = expressions().find(node.type); found != expressions().end()) {
    return expression(found->second(node));
  }
  if (torch_modules().contains(node.type) && registry.find(node.type)) return module_form(node, registry);
  return std::nullopt;
}

std::string filled(std::string text, const std::string& module, const std::vector<std::string>& inputs) {
  text = replaced(text, "{module}", module);
  std::string all;
  for (size_t i = 0; i < inputs.size(); ++i) {
    text = replaced(text, "{" + std::to_string(i) + "}", inputs[i]);
    all += (i == 0 ? "" : ", ") + inputs[i];
  }
  return replaced(text, "{all}", all);
}

}  // namespace trainrun::python
