#include "runner/interop/python/initialization.h"

#include <nlohmann/json.hpp>

#include "runner/interop/python/options.h"

namespace trainrun::python {
namespace {

/// "KaimingNormal" -> "kaiming_normal_"
std::string function_of(const std::string& type) {
  std::string name;
  for (const char c : type) {
    const bool is_upper = std::isupper(static_cast<unsigned char>(c)) != 0;
    if (is_upper && !name.empty()) name += '_';
    name += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  return name + "_";
}

void initial_values(const Recipe& recipe, std::vector<std::string>& lines, SourceFile& file) {
  if (!recipe.model.init) return;
  file.import("import re");
  std::string text = "@torch.no_grad()\ndef initialize(net):\n    for name, parameter in net.named_parameters():\n";
  bool is_first = true;
  for (const InitializerRule& rule : recipe.model.init->rules) {
    const auto options = written_options(rule.initializer, {"match"});
    text += "        " + std::string(is_first ? "if" : "elif") + " re.search(" + pattern(rule.match) + ", name):\n";
    text += "            nn.init." + function_of(rule.initializer.type) + "(parameter" + further(options) + ")\n";
    is_first = false;
  }
  file.define("initialize", text);
  lines.push_back("initialize(net)");
}

constexpr const char* kLoadWeights = R"(def load_weights(net, path):
    """Takes the tensors of a file that fit; the others stay as they are."""
    weights = LOAD
    own = net.state_dict()
    fitting = {name: tensor for name, tensor in weights.items() if name in own and tensor.shape == own[name].shape}
    net.load_state_dict(fitting, strict=False)
)";

void weights_of_a_file(const Recipe& recipe, std::vector<std::string>& lines, SourceFile& file) {
  if (!recipe.model.weights) return;
  const auto* section = std::get_if<WeightsSection>(&*recipe.model.weights);
  const std::string path = section ? section->path : std::get<std::string>(*recipe.model.weights);
  const Place place = recipe.model.layers.layers.empty() ? Place() : recipe.model.layers.layers[0].component.place;
  if (section && (!section->key.empty() || !section->rename.entries.empty())) {
    file.refuse(place, "model.weights", "key and rename are not written; save the weights under the model's own names");
  }
  file.constant("WEIGHTS", quoted(path));
  const bool is_safe = path.ends_with(".safetensors");
  const std::string load = is_safe ? "load_file(path)" : "torch.load(path, map_location=\"cpu\", weights_only=True)";
  if (!section || section->strict) {
    lines.push_back(
        "net.load_state_dict(" +
        std::string(is_safe ? "load_file(WEIGHTS)" : "torch.load(WEIGHTS, map_location=\"cpu\", weights_only=True)") +
        ")");
    return;
  }
  std::string text = kLoadWeights;
  text.replace(text.find("LOAD"), 4, load);
  file.define("load_weights", text);
  lines.push_back("load_weights(net, WEIGHTS)");
}

void freeze(const Recipe& recipe, std::vector<std::string>& lines, SourceFile& file) {
  if (recipe.model.freeze.empty()) return;
  file.import("import re");
  std::string patterns;
  for (const NamePattern& one : recipe.model.freeze) patterns += (patterns.empty() ? "" : ", ") + pattern(one.text);
  const bool is_one = recipe.model.freeze.size() == 1;
  file.constant("FROZEN", is_one ? patterns : "(" + patterns + ")");
  const std::string condition =
      is_one ? "re.search(FROZEN, name)" : "any(re.search(pattern, name) for pattern in FROZEN)";
  file.define("freeze",
              "def freeze(net):\n"
              "    for name, parameter in net.named_parameters():\n"
              "        if " +
                  condition +
                  ":\n"
                  "            parameter.requires_grad = False\n");
  if (!recipe.model.unfreeze_at_epoch) lines.push_back("freeze(net)");
}

}  // namespace

std::vector<std::string> write_initialization(const Recipe& recipe, SourceFile& file) {
  std::vector<std::string> lines;
  initial_values(recipe, lines, file);
  weights_of_a_file(recipe, lines, file);
  freeze(recipe, lines, file);
  return lines;
}

}  // namespace trainrun::python
