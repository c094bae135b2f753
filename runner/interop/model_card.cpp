#include "runner/interop/model_card.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <set>
#include <sstream>

#include "registry/formats/files/file_io.h"
#include "registry/formats/web/named_sources.h"
#include "registry/language/text_forms.h"
#include "runner/base/secrets.h"
#include "runner/base/text.h"
#include "runner/interop/hub_datasets.h"

namespace trainrun {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr uint64_t kMostRecipeBytes = uint64_t{16} << 20;
constexpr int kFigures = 6;

/// A text as YAML and JSON have it.
std::string quoted(const std::string& text) {
  return json(text).dump(-1, ' ', /*ensure_ascii=*/false, json::error_handler_t::replace);
}

/// A cell of Markdown's tables.
std::string cell(const std::string& text) {
  std::string safe;
  for (const char c : text) {
    if (c == '|') safe += '\\';
    safe += c == '\n' ? ' ' : c;
  }
  return safe;
}

/// The first mapping, of data or of data within them, that names a file or folder, and the key under which it does.
std::pair<const Value*, const char*> naming_files(const Value& value) {
  for (const char* key : {"path", "root", "files", "url"}) {
    const Value* own = value.find(key);
    if (own && own->is_scalar() && !own->is_null()) return {&value, key};
  }
  for (const Value::Entry& entry : value.entries()) {
    if (const auto found = naming_files(entry.value); found.first) return found;
  }
  for (const Value& item : value.items()) {
    if (const auto found = naming_files(item); found.first) return found;
  }
  return {nullptr, nullptr};
}

struct NamedData {
  std::string key;     // under which state.json has them: "train", "eval", "eval/clean"
  std::string type;    // "TextClassification"
  std::string source;  // the file or folder; "": the type says it all
};

NamedData named_data(const std::string& key, const Component<DatasetKind>& data) {
  const auto [mapping, of_file] = naming_files(data.written);
  if (!mapping) return {key, data.type, ""};
  const Value* type = mapping->find("type");  // of what a Split wraps
  return {key, type && type->is_scalar() ? type->text() : data.type, public_path(mapping->find(of_file)->text())};
}

std::vector<NamedData> data_of(const Recipe& recipe) {
  std::vector<NamedData> all = {named_data("train", recipe.dataset.train)};
  for (size_t i = 0; recipe.dataset.eval && i < recipe.dataset.eval->sets.size(); ++i) {
    const EvalSets::One& set = recipe.dataset.eval->sets[i];
    all.push_back(named_data(set.prefix(), set.data));
  }
  return all;
}

/// Figures that are numbers.
std::vector<std::pair<std::string, double>> figures_of(const json& state) {
  std::vector<std::pair<std::string, double>> figures;
  for (const json& one : state.value("metrics", json::array())) {
    if (one.at(1).is_number() && std::isfinite(one.at(1).get<double>())) figures.emplace_back(one.at(0), one.at(1));
  }
  return figures;
}

/// Of "eval/clean/accuracy" the set's prefix and the metric's name.
std::pair<std::string, std::string> parts_of_figure(const std::string& name, const std::vector<NamedData>& data) {
  std::string prefix;
  for (const NamedData& one : data) {
    if (name.starts_with(one.key + "/") && one.key.size() > prefix.size()) prefix = one.key;
  }
  return {prefix, prefix.empty() ? name : name.substr(prefix.size() + 1)};
}

const NamedData& data_called(const std::string& key, const std::vector<NamedData>& all) {
  for (const NamedData& one : all) {
    if (one.key == key) return one;
  }
  return all.back();
}

/// The run's figures as the hub's leaderboards read them. Losses are left out, as by transformers' Trainer.
std::string model_index(const TrainedRun& run, const CardSubject& subject, const std::vector<NamedData>& data) {
  std::ostringstream yaml;
  std::string last;
  std::set<std::string> types;
  for (const auto& [name, value] : figures_of(run.state())) {
    const auto [prefix, metric] = parts_of_figure(name, data);
    if (metric == "loss") continue;
    types.insert(metric);
    if (prefix != last || last.empty()) {
      const NamedData& of = data_called(prefix, data);
      const std::string file = fs::path(of.source).filename().string();
      yaml << "  - task:\n      type: " << subject.task
           << "\n    dataset:\n      name: " << quoted(file.empty() ? of.type : file)
           << "\n      type: " << quoted(of.type) << "\n    metrics:\n";
      last = prefix;
    }
    yaml << "    - type: " << quoted(metric) << "\n      value: " << json(value).dump()
         << "\n      name: " << quoted(name) << "\n";
  }
  if (types.empty() || subject.task.empty()) return "";
  std::string head = "metrics:\n";
  for (const std::string& type : types) head += "- " + quoted(type) + "\n";
  return head + "model-index:\n- name: " + quoted(run.recipe().name) + "\n  results:\n" + yaml.str();
}

std::string front_matter(const TrainedRun& run, const CardSubject& subject, const std::vector<NamedData>& data) {
  std::string yaml = "---\nlibrary_name: " + subject.library + "\n";
  if (!subject.task.empty()) yaml += "pipeline_tag: " + subject.task + "\n";
  if (const auto base = published_model(subject.base)) {
    yaml += "base_model: " + quoted(base->id) + "\n";
    yaml += std::string("base_model_relation: ") + (subject.is_adapter ? "adapter" : "finetune") + "\n";
  }
  const std::vector<std::string> of_hub = hub_datasets_of(run.recipe().dataset.train.written);
  if (!of_hub.empty()) yaml += "datasets:\n";
  for (const std::string& name : of_hub) yaml += "- " + quoted(name) + "\n";
  yaml += "tags:\n- trainrun\n";
  if (subject.library == "sentence-transformers") yaml += "- sentence-transformers\n";
  if (!subject.architecture.empty()) yaml += "- " + quoted(subject.architecture) + "\n";
  return yaml + model_index(run, subject, data) + "---\n\n";
}

std::string heading(const TrainedRun& run, const CardSubject& subject) {
  const std::string model = "`" + (subject.architecture.empty() ? "model" : subject.architecture) + "`";
  std::string base = subject.base.empty() ? "" : "the local folder `" + name_of_folder(subject.base) + "`";
  if (const auto published = published_model(subject.base)) {
    base = "[" + published->id + "](https://huggingface.co/" + published->id + ")" +
           (is_commit(published->revision) ? " at commit `" + published->revision + "`" : "");
  }
  std::string text = "# " + run.recipe().name + "\n\n";
  if (subject.is_adapter) {
    text += "An adapter for " + (base.empty() ? "a " + model : base + ", a " + model) + ", trained";
  } else {
    text += "A " + model + (base.empty() ? ", trained from scratch" : ", fine-tuned from " + base);
  }
  return text + " with trainrun.\n\n";
}

std::string labels_table(const CardSubject& subject) {
  constexpr size_t kMostLabels = 100;
  if (subject.labels.empty()) return "";
  std::string text = "## Labels\n\n| id | label |\n|---|---|\n";
  const size_t count = std::min(subject.labels.size(), kMostLabels);
  for (size_t i = 0; i < count; ++i) text += "| " + std::to_string(i) + " | " + cell(subject.labels[i]) + " |\n";
  if (count < subject.labels.size()) {
    text += "\nThese are the first " + std::to_string(count) + " of " + std::to_string(subject.labels.size()) +
            " labels; `id2label` in config.json has all of them.\n";
  }
  return text + "\n";
}

std::string data_table(const TrainedRun& run, const std::vector<NamedData>& data) {
  std::string text = "## Data\n\n| set | type | source | samples |\n|---|---|---|---|\n";
  const json counts = run.state().value("data", json::object());
  for (const NamedData& one : data) {
    std::string key = one.key;  // "eval/clean" is "eval.clean" there
    std::ranges::replace(key, '/', '.');
    const json own = counts.value(key, json::object());
    const std::string samples = own.contains("samples") ? grouped(own["samples"].get<int64_t>()) : "";
    text += "| " + one.key + " | " + one.type + " | " + (one.source.empty() ? "" : "`" + cell(one.source) + "`") +
            " | " + samples + " |\n";
  }
  return text + "\n";
}

std::string figures_table(const TrainedRun& run) {
  const json& state = run.state();
  const auto figures = figures_of(state);
  if (figures.empty()) return "";
  std::string text = "## Evaluation\n\nThe last evaluation up to this checkpoint (optimizer step " +
                     grouped(state.at("step").get<int64_t>()) + "):\n\n";
  text += "| figure | value |\n|---|---|\n";
  for (const auto& [name, value] : figures) text += "| " + cell(name) + " | " + in_figures(value, kFigures) + " |\n";
  return text + "\n";
}

std::string versions_table(const TrainedRun& run) {
  std::string text = "## Versions\n\n| program | version |\n|---|---|\n";
  const json versions = run.state().value("versions", json::object());
  for (const auto& [name, version] : versions.items()) {
    text += "| " + name + " | " + version.get<std::string>() + " |\n";
  }
  return text + "\n";
}

std::string recipe_part(const TrainedRun& run) {
  const std::string recipe = read_file(run.recipe_path(), kMostRecipeBytes);
  std::string fence = "```";
  while (recipe.find(fence) != std::string::npos) fence += '`';
  return "## To repeat the training\n\nSave this recipe as `recipe.yaml` and run `trainrun recipe.yaml`.\n\n" + fence +
         "yaml\n" + recipe + (recipe.ends_with('\n') ? "" : "\n") + fence + "\n";
}

}  // namespace

std::string model_card(TrainedRun& run, const CardSubject& subject) {
  const std::vector<NamedData> data = data_of(run.recipe());
  std::string card = front_matter(run, subject, data) + heading(run, subject);
  if (!subject.usage.empty()) card += "## Use\n\n```python\n" + subject.usage + "```\n\n";
  for (const std::string& remark : subject.remarks) card += "- " + remark + "\n";
  if (!subject.remarks.empty()) card += '\n';
  card += labels_table(subject) + data_table(run, data) + figures_table(run) + versions_table(run) + recipe_part(run);
  return without_secrets(std::move(card));
}

std::string name_of_folder(const std::string& folder) {
  const fs::path path = fs::path(folder).lexically_normal();
  return (path.has_filename() ? path : path.parent_path()).filename().string();
}

std::optional<HubName> published_model(const std::string& folder) {
  const std::string name = published_name(folder);
  return name == folder ? std::nullopt : hub_name_of(name);
}

namespace {

struct ModelKind {
  const char* ends;  // the name of its class in transformers
  const char* auto_class;
  const char* task;
};
constexpr std::array kKinds = {
    ModelKind{"ForSequenceClassification", "AutoModelForSequenceClassification", "text-classification"},
    ModelKind{"ForTokenClassification", "AutoModelForTokenClassification", "token-classification"},
    ModelKind{"ForImageClassification", "AutoModelForImageClassification", "image-classification"},
    ModelKind{"ForMaskedLM", "AutoModelForMaskedLM", "fill-mask"},
    ModelKind{"ForCausalLM", "AutoModelForCausalLM", "text-generation"},
    ModelKind{"LMHeadModel", "AutoModelForCausalLM", "text-generation"},
    ModelKind{"Model", "AutoModel", "feature-extraction"},
};

const ModelKind* kind_of(const std::string& architecture) {
  const auto* found = std::ranges::find_if(kKinds, [&](const auto& kind) { return architecture.ends_with(kind.ends); });
  return found == kKinds.end() ? nullptr : found;
}

}  // namespace

std::string auto_class_of(const std::string& architecture) {
  const ModelKind* kind = kind_of(architecture);
  return kind ? kind->auto_class : "AutoModel";
}

std::string pipeline_tag_of(const std::string& architecture) {
  const ModelKind* kind = kind_of(architecture);
  return kind ? kind->task : "";
}

}  // namespace trainrun
