#include <algorithm>
#include <filesystem>
#include <set>

#include "registry/graph/flatten.h"
#include "registry/tensors/files/safetensors.h"
#include "runner/interop/export_files.h"
#include "runner/interop/exported_data.h"
#include "runner/interop/model_card.h"
#include "runner/interop/model_export.h"
#include "runner/interop/tokenizer_export.h"
#include "runner/model/model_adapters.h"
#include "runner/model/model_records.h"

namespace trainrun {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

/// What peft puts before the names of the base model.
constexpr const char* kPeftPrefix = "base_model.model.";

std::string last_part(const std::string& name) { return name.substr(name.rfind('.') + 1); }

/// Whether peft, which takes every layer whose name ends with one of these, takes `chosen` and no other of `all`.
bool is_meant_by_last_parts(const std::set<std::string>& chosen, const std::vector<std::string>& all) {
  std::set<std::string> parts;
  for (const std::string& name : chosen) parts.insert(last_part(name));
  return std::ranges::all_of(all, [&](const std::string& name) {
    const bool is_taken = std::ranges::any_of(parts, [&](const auto& part) { return name.ends_with(part); });
    return !is_taken || chosen.contains(name);
  });
}

json last_parts(const std::set<std::string>& names) {
  std::set<std::string> parts;
  for (const std::string& name : names) parts.insert(last_part(name));
  return parts;
}

/// The settings of all layers as one: lists are put together, ranks that differ are in rank_pattern.
json combined_config(const std::vector<AdaptedLayer>& layers, const std::string& prefix) {
  json all = layers.at(0).adapter.config;
  json ranks = json::object();
  for (const AdaptedLayer& layer : layers) {
    if (layer.adapter.config.is_null()) {
      throw Error("export: --format peft: peft has no adapter such as that of " + layer.name +
                  "; write --format safetensors, perhaps with --merge");
    }
    for (const auto& [key, value] : layer.adapter.config.items()) {
      if (value.is_array()) {
        if (&layer != &layers[0]) all[key].insert(all[key].end(), value.begin(), value.end());
      } else if (key == "fan_in_fan_out") {
        all[key] = all[key].get<bool>() || value.get<bool>();  // peft tells the layers' own types apart
      } else if (key == "r" && value != all[key]) {
        ranks[layer.name.substr(prefix.size())] = value;
      }
    }
  }
  if (all.contains("r")) all["rank_pattern"] = ranks;
  return all;
}

/// Names below `prefix`, without it. Throws Error for one that lies elsewhere.
std::string without_prefix(const std::string& name, const std::string& prefix) {
  if (name.starts_with(prefix)) return name.substr(prefix.size());
  throw Error("export: --format peft: " + name + " is not a layer of the language model; write --format safetensors");
}

/// "CAUSAL_LM" where peft's model of that kind adds nothing that is to be trained.
json task_type(const json& config) {
  const std::string architecture = config.value("architectures", json::array({""})).at(0).get<std::string>();
  const bool is_causal = architecture.ends_with("ForCausalLM") || architecture.ends_with("LMHeadModel");
  return is_causal ? json("CAUSAL_LM") : json();
}

json peft_config(const Model& model, const std::vector<FoundRecord>& records, const std::string& prefix) {
  const ModelAdapters& adapters = *model.adapters();
  json config = combined_config(adapters.layers(), prefix);
  std::set<std::string> targets;
  for (const AdaptedLayer& layer : adapters.layers()) targets.insert(without_prefix(layer.name, prefix));
  std::vector<std::string> all;
  for (const FlatLayer& layer : flatten(model.graph()).layers) {
    if (layer.name.starts_with(prefix)) all.push_back(layer.name.substr(prefix.size()));
  }
  std::set<std::string> feedforward;
  for (const json& name : config.value("feedforward_modules", json::array())) {
    feedforward.insert(without_prefix(name.get<std::string>(), prefix));
  }
  const std::vector<std::string> target_list(targets.begin(), targets.end());
  const bool is_short = is_meant_by_last_parts(targets, all) && is_meant_by_last_parts(feedforward, target_list);
  config["target_modules"] = is_short ? last_parts(targets) : json(targets);
  if (config.contains("feedforward_modules")) {
    config["feedforward_modules"] = is_short ? last_parts(feedforward) : json(feedforward);
  }
  std::vector<std::string> saved;
  for (const std::string& name : adapters.saved_modules()) saved.push_back(without_prefix(name, prefix));
  config["modules_to_save"] = saved.empty() ? json() : json(saved);
  const bool has_base = records.size() == 1 && !records[0].record->pretrained.empty();
  config["base_model_name_or_path"] = has_base ? json(records[0].record->pretrained) : json();
  if (const auto published = has_base ? published_model(records[0].record->pretrained) : std::nullopt) {
    config["base_model_name_or_path"] = published->id;
    config["revision"] = published->revision;
  }
  config["task_type"] = records.size() == 1 ? task_type(records[0].record->config) : json();
  if (adapters.trains_shared_weights()) {
    if (config.value("peft_type", "") != "LORA") {
      throw Error(
          "export: --format peft: of peft's adapters only LoRA and DoRA have ensure_weight_tying; write --format "
          "huggingface");
    }
    config["ensure_weight_tying"] = true;
  }
  config["inference_mode"] = true;
  return config;
}

bool lies_in_any(const std::string& name, const std::vector<std::string>& modules) {
  return std::ranges::any_of(modules, [&](const std::string& module) { return name.starts_with(module + "."); });
}

/// What one needs besides to use the adapter.
void write_tokenizer_and_card(TrainedRun& run, const std::vector<FoundRecord>& records, const fs::path& folder) {
  const std::string base = pretrained_folder(run.model().graph());
  const json base_config = records.size() == 1 ? records[0].record->config : json::object();
  CardSubject subject{"peft", "", "", base, /*is_adapter=*/true};
  subject.remarks = ways_back(run.contract());
  if (records.size() == 1) {
    subject.architecture = base_config.at("architectures").at(0).get<std::string>();
    subject.task = pipeline_tag_of(subject.architecture);
  }
  const auto published = published_model(base);
  const std::string named = published ? published->id : base.empty() ? "BASE" : name_of_folder(base);
  const std::string type = auto_class_of(subject.architecture);
  subject.usage = "from peft import PeftModel\nfrom transformers import " + type + ", AutoTokenizer\n\nbase = " + type +
                  ".from_pretrained(\"" + named + "\")\nmodel = PeftModel.from_pretrained(base, \"FOLDER\")\n";
  if (const auto tokenizer = tokenizer_of_data(run, base)) {
    export_tokenizer(run, *tokenizer, base_config, std::nullopt, folder);
    subject.usage += "tokenizer = AutoTokenizer.from_pretrained(\"FOLDER\")\n";
  }
  if (records.size() == 1 && records[0].record->grown_from) {  // peft puts the saved rows into a model that has room
    const std::string opens = "model = PeftModel";
    subject.usage.insert(subject.usage.find(opens),
                         "base.resize_token_embeddings(" + base_config.at("vocab_size").dump() + ")\n");
  }
  write_file_atomically((folder / "README.md").string(), model_card(run, subject));
}

}  // namespace

void export_peft(TrainedRun& run, const std::string& folder) {
  Model& model = run.model();
  if (!model.adapters()) {
    throw Error("export: --format peft: the recipe of this run has no adapters; write --format huggingface");
  }
  const EvaluationScope scope(run.callbacks());
  const std::vector<FoundRecord> records = find_records(model.graph());
  const std::string prefix = records.size() == 1 ? records[0].prefix : "";
  const json config = peft_config(model, records, prefix);
  NamedTensors tensors;
  const NamedTensors state = model.state_dict();
  std::set<const at::TensorImpl*> saved;  // a weight that layers share is saved under all its names
  for (const auto& [name, tensor] : state) {
    const bool is_saved = model.adapters()->has(name) || lies_in_any(name, model.adapters()->saved_modules());
    if (is_saved) saved.insert(tensor.unsafeGetTensorImpl());
  }
  for (const auto& [name, tensor] : state) {
    if (saved.contains(tensor.unsafeGetTensorImpl()))
      tensors.emplace_back(kPeftPrefix + without_prefix(name, prefix), tensor);
  }
  NewFolder made(folder);
  write_safetensors((made.path() / "adapter_model.safetensors").string(), tensors, file_metadata(run));
  write_json_file(made.path() / "adapter_config.json", config);
  write_tokenizer_and_card(run, records, made.path());
  made.finish();
}

}  // namespace trainrun
