#include <filesystem>

#include "registry/models/sentence_record.h"
#include "runner/interop/export_files.h"
#include "runner/interop/exported_data.h"
#include "runner/interop/model_export.h"

namespace trainrun {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

json module_of(int place, const std::string& type, const std::string& path) {
  return {{"idx", place},
          {"name", std::to_string(place)},
          {"path", path},
          {"type", "sentence_transformers.models." + type}};
}

}  // namespace

bool export_sentence_modules(TrainedRun& run, const json& config, const std::string& folder) {
  const SentenceRecord* record = nullptr;
  for (const auto& module : run.model().graph().modules()) {
    if (const auto* found = dynamic_cast<const SentenceRecord*>(module.get())) record = found;
  }
  if (!record) return false;
  const fs::path root(folder);
  json modules = {module_of(0, "Transformer", ""), module_of(1, "Pooling", "1_Pooling")};
  if (record->normalizes) modules.push_back(module_of(2, "Normalize", "2_Normalize"));
  write_json_file(root / "modules.json", modules);
  create_folders((root / "1_Pooling").string());
  write_json_file(root / "1_Pooling" / "config.json",
                  json{{"word_embedding_dimension", config.contains("dim") ? config["dim"] : config.at("hidden_size")},
                       {"pooling_mode_cls_token", record->pooling == "cls"},
                       {"pooling_mode_mean_tokens", record->pooling == "mean"},
                       {"pooling_mode_max_tokens", record->pooling == "max"},
                       {"pooling_mode_mean_sqrt_len_tokens", false}});
  write_json_file(root / "config_sentence_transformers.json",
                  json{{"similarity_fn_name", "cosine"}, {"prompts", json::object()}});
  const auto length = most_tokens(run.contract());
  write_json_file(root / "sentence_bert_config.json",
                  json{{"max_seq_length", length ? json(*length) : json()}, {"do_lower_case", false}});
  return true;
}

}  // namespace trainrun
