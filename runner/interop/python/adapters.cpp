#include "runner/interop/python/adapters.h"

#include <ATen/core/Tensor.h>
#include <nlohmann/json.hpp>
#include <torch/nn/module.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <filesystem>
#include <map>
#include <set>

#include "registry/components/adapters/peft_folder.h"
#include "registry/graph/flatten.h"
#include "registry/kinds/adapter.h"
#include "runner/interop/python/expression.h"
#include "runner/model/model_adapters.h"

namespace trainrun::python {
namespace {

constexpr const char* kLoraLinear = R"(class LoRALinear(nn.Linear):
    """A linear layer that stays as it is, and a product of two small matrices that learns what to add to it (Hu et al. 2021)."""

    def __init__(self, linear):
        super().__init__(linear.in_features, linear.out_features, linear.bias is not None, device="meta")
        self.weight, self.bias = linear.weight, linear.bias
        self.is_adapted = True
        self.lora_A = nn.Linear(linear.in_features, LORA_RANK, bias=False, device=linear.weight.device)
        self.lora_B = nn.Linear(LORA_RANK, linear.out_features, bias=False, device=linear.weight.device)
        nn.init.zeros_(self.lora_B.weight)

    def forward(self, x):
        if not self.is_adapted:
            return super().forward(x)
        return torch.add(super().forward(x), self.lora_B(self.lora_A(INPUT)), alpha=SCALE)
)";

constexpr const char* kWithoutAdapters = R"(@contextlib.contextmanager
def without_adapters(net):
    """Has the network compute what it would without its adapters."""
    layers = [module for module in net.modules() if isinstance(module, LoRALinear)]
    for layer in layers:
        layer.is_adapted = False
    yield
    for layer in layers:
        layer.is_adapted = True
)";

constexpr const char* kWithoutAdaptersAndTrained = R"(@contextlib.contextmanager
def without_adapters(net):
    """Has the network compute what it would without its adapters, and with TRAINED as it was before training."""
    layers = [module for module in net.modules() if isinstance(module, LoRALinear)]
    learnt = {name: net.get_parameter(name).data for name in net.originals}
    for layer in layers:
        layer.is_adapted = False
    for name, data in net.originals.items():
        net.get_parameter(name).data = data
    yield
    for layer in layers:
        layer.is_adapted = True
    for name, data in learnt.items():
        net.get_parameter(name).data = data
)";

constexpr const char* kKeepOriginals = R"(def keep_originals(net):
    """Notes what TRAINED is before training."""
    net.originals = {name: p.detach().clone() for name, p in net.named_parameters() if name.startswith(TRAINED)}
)";

constexpr const char* kAddAdapters = R"(def add_adapters(net):
    """Has the linear layers with such names learn by LoRA. Of all else, TRAINED."""
    for name, module in list(net.named_modules()):
        if isinstance(module, nn.Linear) and re.search(ADAPTED, name):
            parent, _, own = name.rpartition(".")
            setattr(net.get_submodule(parent), own, LoRALinear(module))
    for name, parameter in net.named_parameters():
        parameter.requires_grad = "lora_" in name
)";

constexpr const char* kLoadAdapters = R"(def load_adapters(net, path):
    """Begins with the adapters of a file that peft wrote."""
    tensors = {OWN: tensor for name, tensor in load_file(path).items()}
    if unknown := net.load_state_dict(tensors, strict=False).unexpected_keys:
        raise ValueError(f"{path} has adapters of other layers: {unknown}")
)";

/// What a plain name chooses, as a regular expression: layers that are called so.
std::string expression_for(const NamePattern& one, const std::vector<AdaptedLayer>& layers) {
  const bool is_plain = std::all_of(one.text.begin(), one.text.end(),
                                    [](unsigned char c) { return std::isalnum(c) != 0 || c == '_' || c == '.'; });
  const bool is_end = std::any_of(layers.begin(), layers.end(), [&](const AdaptedLayer& layer) {
    return layer.name == one.text || layer.name.ends_with("." + one.text);
  });
  return is_plain && is_end ? R"((^|\.))" + replaced(one.text, ".", R"(\.)") + "$" : one.text;
}

class AdapterWriter {
 public:
  AdapterWriter(const Component<AdapterKind>& adapters, const ModelAdapters& own, const Model& base, SourceFile& file,
                bool has_reference)
      : adapters_(adapters), own_(own), base_(base), file_(file), has_reference_(has_reference) {}

  std::vector<std::string> write() {
    check();
    file_.import("import re");
    file_.constant("ADAPTED", pattern(adapters_.common.weights ? names_of_layers() : patterns_of_target()),
                   "names of layers");
    write_layer();
    write_choice();
    std::vector<std::string> lines = {"add_adapters(net)"};
    if (adapters_.common.weights) lines.push_back(write_folder(*adapters_.common.weights));
    return lines;
  }

 private:
  void refuse(const std::string& message) const { file_.refuse(adapters_.place, adapters_.path, message); }

  std::string patterns_of_target() const {
    std::string patterns;
    for (const NamePattern& one : adapters_.common.target)
      patterns += (patterns.empty() ? "" : "|") + expression_for(one, own_.layers());
    return patterns;
  }
  /// All of them, by their last names where no other layer has these.
  std::string names_of_layers() const {
    std::set<std::string> last_names;
    for (const AdaptedLayer& layer : own_.layers()) last_names.insert(layer.name.substr(layer.name.rfind('.') + 1));
    const bool are_all = std::ranges::all_of(flatten(base_.graph()).layers, [&](const FlatLayer& layer) {
      const std::string last = layer.name.substr(layer.name.rfind('.') + 1);
      return !layer.is_leaf() || !last_names.contains(last) || is_adapted(layer.name);
    });
    std::string patterns;
    for (const std::string& name : last_names) patterns += (patterns.empty() ? "" : "|") + name;
    if (are_all) return R"((^|\.)()" + patterns + ")$";
    patterns.clear();
    for (const AdaptedLayer& layer : own_.layers()) {
      patterns += (patterns.empty() ? "" : "|") + replaced(layer.name, ".", R"(\.)");
    }
    return "^(" + patterns + ")$";
  }

  /// Adds what loads the adapters of a folder, and returns the statement that does it.
  std::string write_folder(const std::string& folder) const {
    const PeftFolder saved(folder);
    constexpr const char* kFile = "/adapter_model.safetensors";
    const bool is_safe = std::filesystem::exists(folder + kFile);
    const bool are_factors = std::ranges::all_of(saved.tensors(), [](const auto& tensor) {
      return tensor.first.ends_with(".lora_A.weight") || tensor.first.ends_with(".lora_B.weight");
    });
    if (!is_safe || !are_factors || !own_.saved_modules().empty()) {
      refuse(
          "of a folder of adapters, adapter_model.safetensors with the two factors of each layer is written, and no "
          "other weight (modules_to_save, embeddings); leave weights out, and name their layers");
      return "";
    }
    file_.constant("ADAPTERS", quoted(folder + kFile));
    file_.define("load_adapters", replaced(kLoadAdapters, "OWN", own_name(saved.tensors()[0].first)));
    return "load_adapters(net, ADAPTERS)";
  }
  /// An expression of what the model calls a tensor `name` of the folder, of which `first` is one without peft's prefix.
  std::string own_name(const std::string& first) const {
    std::string text = "name.removeprefix(\"base_model.model.\")";
    const std::string layer = first.substr(0, first.find(".lora_"));
    for (const AdaptedLayer& own : own_.layers()) {
      if (own.name == layer) return text;
    }
    for (const AdaptedLayer& own : own_.layers()) {
      if (own.name.ends_with("." + layer)) {
        return quoted(own.name.substr(0, own.name.size() - layer.size())) + " + " + text;
      }
      if (layer.ends_with("." + own.name)) {
        return text + ".removeprefix(" + quoted(layer.substr(0, layer.size() - own.name.size())) + ")";
      }
    }
    refuse("the names in the folder of adapters are not those of the layers; leave weights out");
    return text;
  }

  void check() const {
    for (const AdaptedLayer& layer : own_.layers()) {
      const bool is_alike = std::ranges::all_of(
          std::array{"r", "lora_alpha", "lora_dropout", "use_rslora"},
          [&](const char* key) { return layer.adapter.config.at(key) == own_.layers().at(0).adapter.config.at(key); });
      if (is_alike) continue;
      refuse("LoRA of one rank and scale is written, and that of " + layer.name + " is another than that of " +
             own_.layers().at(0).name);
      return;
    }
    for (const AdaptedLayer& layer : own_.layers()) {
      const bool is_rows = layer.adapter.parameters.at(0).first.find("embedding") != std::string::npos;
      if (is_rows || layer.adapter.config.value("fan_in_fan_out", false)) {
        refuse("LoRA is written for Linear layers alone, and " + layer.name + " is another; leave it out of target");
        return;
      }
    }
    check_shared();
  }

  bool is_saved(const std::string& layer) const {
    return std::ranges::any_of(own_.saved_modules(), [&](const std::string& module) {
      return layer == module || layer.starts_with(module + ".");
    });
  }
  bool is_adapted(const std::string& layer) const {
    return std::ranges::any_of(own_.layers(), [&](const AdaptedLayer& own) { return own.name == layer; });
  }

  /// In Python such a layer would be replaced in one of its places, and such a weight trained in all of its.
  void check_shared() const {
    std::map<const void*, std::string> owners;  // the first layer that has each module or weight
    for (const FlatLayer& layer : flatten(base_.graph()).layers) {
      const auto& state = layer.node->layer.state;
      if (!layer.is_leaf() || !state) continue;
      const auto [module, is_first] = owners.emplace(state.get(), layer.name);
      if (!is_first && is_adapted(module->second)) {
        refuse("the adapter of " + layer.name + ", which is " + module->second +
               ", too, is not written; leave it out of target");
      }
      if (!is_first) continue;
      const auto parameters = state->named_parameters(/*recurse=*/false);
      const at::Tensor* weight = parameters.find("weight");
      if (!weight) continue;
      const auto [owner, is_own] = owners.emplace(weight->unsafeGetTensorImpl(), layer.name);
      if (!is_own && (is_saved(layer.name) || is_saved(owner->second))) {
        refuse("modules_to_save is not written for " + layer.name + ", which shares its weight with " + owner->second +
               "; leave it out");
      }
    }
  }

  void write_layer() {
    const nlohmann::json& config = own_.layers().at(0).adapter.config;
    file_.constant("LORA_RANK", config.at("r").dump());
    file_.constant("LORA_ALPHA", config.at("lora_alpha").dump());
    std::string text = kLoraLinear;
    text = replaced(text, "SCALE",
                    config.at("use_rslora").get<bool>() ? "LORA_ALPHA / LORA_RANK**0.5" : "LORA_ALPHA / LORA_RANK");
    const bool drops = config.at("lora_dropout").get<double>() > 0;
    if (drops) {
      file_.constant("LORA_DROPOUT", config["lora_dropout"].dump());
      file_.import("from torch.nn import functional as F");
    }
    if (has_reference_) {
      file_.import("import contextlib");
    } else {
      text = replaced(text, "        self.is_adapted = True\n", "");
      text = replaced(text, "        if not self.is_adapted:\n            return super().forward(x)\n", "");
    }
    file_.define("LoRALinear", replaced(text, "INPUT", drops ? "F.dropout(x, LORA_DROPOUT, self.training)" : "x"));
    if (!has_reference_) return;
    if (own_.saved_modules().empty()) return file_.define("without_adapters", kWithoutAdapters);
    file_.define("without_adapters", kWithoutAdaptersAndTrained);
    file_.define("keep_originals", kKeepOriginals);
  }

  void write_choice() {
    std::string text = kAddAdapters;
    std::string names;
    for (const std::string& module : own_.saved_modules()) names += (names.empty() ? "" : ", ") + quoted(module + ".");
    if (own_.saved_modules().size() == 1) names += ',';
    text = replaced(text, "Of all else, TRAINED.",
                    names.empty() ? "Nothing else learns." : "Of all else, TRAINED alone learns.");
    if (!names.empty()) {
      file_.constant("TRAINED", "(" + names + ")");
      text = replaced(text, "\"lora_\" in name\n", "\"lora_\" in name or name.startswith(TRAINED)\n");
    }
    file_.define("add_adapters", text);
  }

  const Component<AdapterKind>& adapters_;
  const ModelAdapters& own_;
  const Model& base_;
  SourceFile& file_;
  bool has_reference_;
};

}  // namespace

std::unique_ptr<Model> plan_base_model(const Recipe& recipe) {
  if (!recipe.model.adapters) return plan_model(recipe);
  Recipe base = recipe;
  base.model.adapters.reset();
  base.loss.clear();  // these may compare with the model without its adapters, which this one is
  base.metrics.clear();
  base.models.entries.clear();
  return plan_model(base);
}

std::vector<std::string> write_adapters(const Recipe& recipe, const Model& base, bool has_reference, SourceFile& file) {
  if (!recipe.model.adapters) return {};
  const auto& adapters = *recipe.model.adapters;
  if (adapters.type != "LoRA") {
    file.refuse(adapters.place, adapters.path, adapters.type + " is not written; use LoRA");
    return {};
  }
  if (!recipe.model.freeze.empty()) {
    file.refuse(adapters.place, adapters.path,
                "adapters beside freeze are not written; leave freeze out, since they freeze all but themselves");
  }
  const auto planned = plan_model(recipe);
  return AdapterWriter(adapters, *planned->adapters(), base, file, has_reference).write();
}

}  // namespace trainrun::python
