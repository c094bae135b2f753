#include "runner/interop/python/model_forms.h"

#include <algorithm>
#include <cctype>
#include <map>
#include <set>

namespace trainrun::python {
namespace {

using nlohmann::json;

}  // namespace

LayerForm torchvision_model(const Graph::Node& node, const LayerRegistry&, SourceFile& file) {
  static const std::map<std::string, std::string> functions = {{"WideResNet50_2", "wide_resnet50_2"},
                                                               {"WideResNet101_2", "wide_resnet101_2"}};
  std::string name;
  const auto other = functions.find(node.type);
  for (const char c : node.type) name += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  if (other != functions.end()) name = other->second;
  file.import("import torchvision");
  Expression::Argument classes{"num_classes", Expression::code(literal(node.attributes.at("num_classes")))};
  LayerForm form;
  form.module = Expression::call("torchvision.models." + name, {classes});
  if (node.attributes.value("zero_init_residual", false)) {
    form.module->arguments.push_back({"zero_init_residual", Expression::code("True")});
  }
  return form;
}

std::optional<LayerForm> transformers_model(const Graph::Node& node, const std::vector<std::string>& inputs,
                                            SourceFile& file) {
  static const std::map<std::string, std::string> families = {
      {"Bert", "BertConfig"},   {"DistilBert", "DistilBertConfig"}, {"Roberta", "RobertaConfig"},
      {"GPT2", "GPT2Config"},   {"Llama", "LlamaConfig"},           {"Qwen2", "Qwen2Config"},
      {"Qwen3", "Qwen3Config"}, {"Mistral", "MistralConfig"}};
  const size_t end = std::min({node.type.find("For"), node.type.find("Model"), node.type.find("LMHead")});
  const auto family = end == std::string::npos ? families.end() : families.find(node.type.substr(0, end));
  if (family == families.end()) return std::nullopt;
  file.import("import transformers");
  std::vector<Expression::Argument> settings;
  static const std::set<std::string> others = {"config", "pretrained", "num_tokens", "fields"};
  for (const auto& [name, value] : node.attributes.items()) {
    if (!others.contains(name) && !value.is_null()) settings.push_back({name, Expression::code(literal(value))});
  }
  LayerForm form;
  const json& pretrained = node.attributes.at("pretrained");
  if (!node.attributes.at("num_tokens").is_null() || !node.attributes.at("config").is_null()) {
    file.refuse(
        node.place, node.path,
        "config and num_tokens are not written; name a folder with the model by pretrained, or write its sizes");
  }
  if (!pretrained.is_null()) {
    std::vector<Expression::Argument> arguments = {{"", Expression::code(literal(pretrained)), true}};
    arguments.insert(arguments.end(), settings.begin(), settings.end());
    form.module = Expression::call("transformers." + node.type + ".from_pretrained", arguments);
  } else {
    form.module = Expression::call("transformers." + node.type,
                                   {{"", Expression::call("transformers." + family->second, settings), true}});
  }
  std::string arguments;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (i != 0 && inputs[i] == inputs[0]) continue;  // the layer asks for that field by name, too
    static const std::set<std::string> known = {"attention_mask", "input_ids", "position_ids", "token_type_ids"};
    const bool is_named = known.contains(inputs[i]) && (i != 0 || inputs[i] != "input_ids");
    arguments += (i == 0 ? "" : ", ") + (is_named ? inputs[i] + "=" : std::string()) + "{" + std::to_string(i) + "}";
  }
  const bool is_bare = node.type.ends_with("Model") && !node.type.ends_with("LMHeadModel");
  form.call = "{module}(" + arguments + ")." + (is_bare ? "last_hidden_state" : "logits");
  return form;
}

}  // namespace trainrun::python
