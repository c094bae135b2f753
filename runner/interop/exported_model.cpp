#include "runner/interop/exported_model.h"

#include <set>

#include "registry/language/text_forms.h"

namespace trainrun {
namespace {

constexpr const char* kOtherFormats =
    "write --format safetensors for the weights by their state names (torchvision's, for a model of torchvision's), or "
    "--format torchscript for a module that torch.jit.load opens without a class in Python";

FoundRecord only_record(const Graph& graph, const std::string& format) {
  const std::vector<FoundRecord> found = find_records(graph);
  if (found.size() == 1) return found[0];
  const std::string has = found.empty() ? "has no such layer" : "has " + std::to_string(found.size()) + " of them";
  throw Error("export: --format " + format + " needs a model that is one registered language model (such as " +
              (format == "gguf"
                   ? std::string("LlamaForCausalLM)")
                   : "BertForSequenceClassification), or one of the vision models ResNet18 to ResNet152, "
                     "ViT_S_16, ViT_B_16, ConvNeXtTiny and MobileNetV2, for which transformers has a class") +
              ", but this recipe's model " + has + "; " + kOtherFormats);
}

/// The model's tensors under their names in transformers, each once.
NamedTensors tensors_of(const NamedTensors& state, const FoundRecord& found, const std::string& architecture) {
  NamedTensors tensors;
  std::vector<std::string> others;
  std::set<const at::TensorImpl*> seen;
  for (const auto& [name, tensor] : state) {
    if (!name.starts_with(found.prefix)) {
      others.push_back(name);
    } else if (seen.insert(tensor.unsafeGetTensorImpl()).second) {
      tensors.emplace_back(name.substr(found.prefix.size()), tensor);
    }
  }
  if (others.empty()) return tensors;
  constexpr size_t kMostNamed = 8;
  throw Error("export: transformers' " + architecture + " has no place for the weights of the recipe's other layers: " +
              join_first(others, kMostNamed, LeftOut::kCount) +
              "; train a model that has its head (such as BertForSequenceClassification), or " + kOtherFormats);
}

}  // namespace

ExportedModel exported_language_model(TrainedRun& run, const std::string& format) {
  const FoundRecord found = only_record(run.model().graph(), format);
  const auto architecture = found.record->config.at("architectures").at(0).get<std::string>();
  return {found, tensors_of(run.model().merged_state_dict(), found, architecture)};
}

}  // namespace trainrun
