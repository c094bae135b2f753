#include "registry/kinds/adapter.h"

#include <torch/nn/module.h>

#include <algorithm>
#include <cctype>

#include "registry/language/error.h"
#include "registry/language/name_regex.h"

namespace trainrun {
namespace {

bool is_plain(const std::string& pattern) {
  return std::ranges::all_of(pattern, [](unsigned char c) { return std::isalnum(c) != 0 || c == '_' || c == '.'; });
}

bool ends_with_name(const std::string& name, const std::string& end) {
  return name == end || name.ends_with("." + end);
}

/// "q_proj" of "model.layers.0.self_attn.q_proj".
std::string last_of(const std::string& name) { return name.substr(name.rfind('.') + 1); }

/// Names that are like `pattern`, for a message: of a whole name the last part is enough.
std::string near_hits(const std::string& pattern, const std::vector<std::string>& names) {
  std::string word;
  for (const char c : pattern) {
    if (std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '.') word += c;
  }
  std::vector<std::string> known = names;
  for (const std::string& name : names) known.push_back(last_of(name));
  std::ranges::sort(known);
  known.erase(std::unique(known.begin(), known.end()), known.end());
  return suggestion(word, known);
}

}  // namespace

at::Tensor AdapterInputs::parameter(const std::string& parameter) const {
  const auto own = state->named_parameters(/*recurse=*/false);
  const at::Tensor* found = own.find(parameter);
  return found ? *found : at::Tensor();
}

void AdapterCommon::describe(Fields<AdapterCommon>& f) {
  f.optional("target", &AdapterCommon::target)
      .doc(
          "the layers that are adapted: regular expressions, searched in the layers' state names; a plain name such as "
          "q_proj means the layers with this name");
  f.optional("weights", &AdapterCommon::weights)
      .doc(
          "a folder of PEFT's (adapter_config.json, adapter_model.safetensors) to start from; it also says which "
          "layers are adapted");
  f.optional("modules_to_save", &AdapterCommon::modules_to_save)
      .doc("patterns like those of target: layers whose own weights are also trained, such as a new classifier");
  f.either("target", "weights");
}

std::vector<bool> names_chosen(const std::vector<NamePattern>& patterns, const std::vector<std::string>& names,
                               const std::string& what) {
  std::vector<bool> chosen(names.size());
  for (const NamePattern& pattern : patterns) {
    std::vector<size_t> hits;
    for (size_t i = 0; is_plain(pattern.text) && i < names.size(); ++i) {
      if (ends_with_name(names[i], pattern.text)) hits.push_back(i);
    }
    if (hits.empty()) {
      const Regex compiled = regex_of(pattern.text);
      for (size_t i = 0; i < names.size(); ++i) {
        if (compiled.is_in(names[i])) hits.push_back(i);
      }
    }
    for (const size_t i : hits) chosen[i] = true;
    if (!hits.empty()) continue;
    throw RecipeError(
        {{pattern.place, pattern.path, "'" + pattern.text + "' matches no " + what + near_hits(pattern.text, names)}});
  }
  return chosen;
}

}  // namespace trainrun
