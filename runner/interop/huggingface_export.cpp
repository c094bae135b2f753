#include <algorithm>
#include <filesystem>
#include <set>

#include "registry/formats/files/file_io.h"
#include "registry/formats/files/safetensors.h"
#include "registry/formats/text/json_node.h"
#include "registry/formats/text/tokenizer.h"
#include "runner/interop/model_export.h"
#include "runner/model/model_records.h"

namespace trainrun {
namespace {

namespace fs = std::filesystem;

FoundRecord only_record(const Graph& graph) {
  const std::vector<FoundRecord> found = find_records(graph);
  if (found.size() == 1) return found[0];
  throw Error(
      "export: --format huggingface needs a model that is one registered language model (such as "
      "BertForSequenceClassification), but this recipe has " +
      std::to_string(found.size()) + "; write --format safetensors");
}

/// The model's tensors under their names in transformers, each once.
NamedTensors tensors_of(const NamedTensors& state, const std::string& prefix) {
  NamedTensors tensors;
  std::vector<std::string> others;
  std::set<const at::TensorImpl*> seen;
  for (const auto& [name, tensor] : state) {
    if (!name.starts_with(prefix)) {
      others.push_back(name);
    } else if (seen.insert(tensor.unsafeGetTensorImpl()).second) {
      tensors.emplace_back(name.substr(prefix.size()), tensor);
    }
  }
  if (others.empty()) return tensors;
  throw Error("export: transformers' model has no place for the weights of other layers: " + join(others) +
              "; write --format safetensors");
}

}  // namespace

void export_huggingface(TrainedRun& run, const std::string& folder) {
  const EvaluationScope scope(run.callbacks());
  const FoundRecord found = only_record(run.model().graph());
  const NamedTensors tensors = tensors_of(run.model().merged_state_dict(), found.prefix);
  create_folders(folder);
  write_safetensors((fs::path(folder) / "model.safetensors").string(), tensors);
  constexpr int kIndent = 2;
  nlohmann::json config = found.record->config;
  const bool has_head = std::ranges::any_of(tensors, [](const auto& item) { return item.first == "lm_head.weight"; });
  if (has_head && config.contains("tie_word_embeddings")) config["tie_word_embeddings"] = false;
  write_file_atomically((fs::path(folder) / "config.json").string(), config.dump(kIndent) + "\n");
  const fs::path source(found.record->pretrained);
  const auto names = source.empty() ? std::vector<std::string>() : tokenizer_files(source.string());
  for (const std::string& name : names) {
    write_file_atomically((fs::path(folder) / name).string(), read_file((source / name).string(), kMostTokenizerBytes));
  }
  export_sentence_modules(run, config, folder);
}

}  // namespace trainrun
