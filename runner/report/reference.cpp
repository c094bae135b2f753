#include "runner/report/reference.h"

#include <algorithm>
#include <cctype>

#include "registry/data/tables/table.h"
#include "runner/base/text.h"
#include "runner/recipe/recipe.h"
#include "runner/report/errors/error_pages.h"

namespace trainrun {
namespace {

using Align = TextTable::Align;

constexpr size_t kPageWidth = 100;  // columns of a console's text
constexpr const char* kExampleData = "{type: Digits, split: train}";

/// "a number" of a recipe where only the type is known: something that a reader can follow.
std::string example_value(const Parameter& parameter, const std::string& component) {
  static const std::map<std::string, std::string> telling = {
      {"kernel_size", "3"},
      {"out_channels", "32"},
      {"out_features", "10"},
      {"hidden_size", "64"},
      {"output_size", "1"},
      {"embedding_dim", "64"},
      {"num_embeddings", "1000"},
      {"shape", "[1, 28, 28]"},
      {"num_samples", "1000"},
      {"mean", "[0.5]"},
      {"std", "[0.5]"},
      {"path", "data/train.csv"},
      {"HubDataset.path", "org/name"},
      {"root", "data/mnist"},
      {"max_lr", "0.01"},
      {"size", "28"},
      {"index", "0"},
      {"step_size", "1000"},
      {"optimizer", "SGD"},
      {"optimizers", "[{match: bias$, optimizer: AdamW}, {optimizer: SGD}]"},
      {"schedulers", "[LinearLR]"},
      {"of",
       "[{dataset: {type: Digits, split: train}, weight: 0.7}, {dataset: {type: Digits, split: test}, weight: 0.3}]"},
      {"points", "[[0, 1], [1000, 0.1]]"},
      {"main", "[{type: Linear, out_features: 10}, ReLU]"}};
  for (const std::string& name : {component + "." + parameter.name, parameter.name}) {
    if (const auto it = telling.find(name); it != telling.end()) return it->second;
  }
  if (parameter.type == DatasetKind::kName) return kExampleData;
  if (parameter.type.starts_with("list of dataset")) return "[" + std::string(kExampleData) + "]";
  if (!parameter.choices.empty()) return parameter.choices[0];
  const auto is = [&](const std::string& type) { return parameter.type.starts_with(type); };
  const double least = parameter.range.minimum.value_or(0) + (parameter.range.above_minimum ? 1 : 0);
  const double number = std::min(std::max(1.0, least), parameter.range.maximum.value_or(1e9));
  if (is("integer")) return detail::number_text(std::max(2.0, number));
  if (is("number")) return detail::number_text(number);
  if (is("true or false")) return "true";
  if (is("list of (layer")) return "[ReLU, GELU]";
  if (is("list of layer")) return "[{type: Linear, out_features: 10}, ReLU]";
  if (is("list of integer")) return "[2]";
  if (is("list of number")) return "[" + detail::number_text(number) + "]";
  if (is("list of (regular expression")) return "[q_proj, v_proj]";
  if (is("list of")) return "[a, b]";
  return parameter.name;
}

std::string default_text(const Parameter& parameter) {
  if (parameter.required) return "required";
  const nlohmann::json& value = parameter.default_value;
  if (value.is_object() && value.empty()) return "";
  if (value.is_string()) return value.get<std::string>().empty() ? "''" : value.get<std::string>();
  if (value.is_number_float()) return detail::number_text(value.get<double>());
  return value.dump();
}

/// Range or choices.
std::string allowed_text(const Parameter& parameter) {
  std::string text = join(parameter.choices, ", ");
  if (!text.empty() && parameter.open_choices) text += ", or any other";
  const std::string range = parameter.range.to_string();
  text = range + (text.empty() || range.empty() ? "" : ", or ") + text;
  if (parameter.if_empty.empty()) return text;
  return text + (text.empty() ? "not empty" : "; not empty");
}

std::string doc_text(const Parameter& parameter) {
  return parameter.doc + (parameter.unit.empty() ? "" : " [" + parameter.unit + "]");
}

/// Choices stand with the documentation here, since they may be long.
std::string parameter_table(const std::vector<Parameter>& parameters) {
  TextTable table({Align::kLeft, Align::kLeft, Align::kLeft, Align::kLeft, Align::kLeft});
  table.add({"name", "type", "default", "range", "what it is"});
  table.add_rule();
  for (const Parameter& parameter : parameters) {
    std::string doc = doc_text(parameter);
    if (!parameter.choices.empty()) {
      doc +=
          (doc.empty() ? "" : ": ") + join(parameter.choices, " | ") + (parameter.open_choices ? " | any other" : "");
    }
    table.add({parameter.name, parameter.type, default_text(parameter), parameter.range.to_string(), doc});
  }
  return table.to_string("  ", kPageWidth);
}

/// Of a heading, as GitHub makes it.
std::string anchor(const std::string& heading) {
  std::string anchor;
  for (const char byte : heading) anchor += static_cast<char>(std::tolower(static_cast<unsigned char>(byte)));
  return anchor;
}

template <class Kind>
KindReference reference_of(const Registry<Kind>& registry) {
  KindReference reference;
  reference.kind = Kind::kName;
  reference.plural = reference.kind + (reference.kind.ends_with('s') ? "es" : "s");
  const auto& common = Codec<typename Kind::Common>::fields();
  reference.common = common.parameters();
  std::vector<Parameter> wanted_of_all;
  const std::vector<std::string> names = common.wanted();
  for (const Parameter& parameter : reference.common) {
    if (std::ranges::find(names, parameter.name) != names.end()) wanted_of_all.push_back(parameter);
  }
  for (const auto& [name, entry] : registry.entries()) {
    reference.components.push_back({name, entry.doc, entry.origin, entry.parameters, entry.wanted, wanted_of_all});
  }
  return reference;
}

}  // namespace

const ComponentReference* KindReference::find(const std::string& name) const {
  const auto it = std::find_if(components.begin(), components.end(),
                               [&](const ComponentReference& component) { return component.name == name; });
  return it == components.end() ? nullptr : &*it;
}

std::vector<std::string> KindReference::names() const {
  std::vector<std::string> names;
  for (const ComponentReference& component : components) names.push_back(component.name);
  return names;
}

std::vector<KindReference> kinds_of(const Catalog& catalog) {
  std::vector<KindReference> kinds;
  catalog.for_each([&](const auto& registry) { kinds.push_back(reference_of(registry)); });
  return kinds;
}

const KindReference* find_kind(const std::vector<KindReference>& kinds, const std::string& name) {
  const auto it = std::find_if(kinds.begin(), kinds.end(),
                               [&](const KindReference& kind) { return kind.kind == name || kind.plural == name; });
  return it == kinds.end() ? nullptr : &*it;
}

std::string example_of(const ComponentReference& component) {
  std::string parameters;
  for (const Parameter& parameter : component.parameters) {
    const bool is_wanted = std::ranges::find(component.wanted, parameter.name) != component.wanted.end();
    if (parameter.required || is_wanted)
      parameters += ", " + parameter.name + ": " + example_value(parameter, component.name);
  }
  for (const Parameter& parameter : component.wanted_of_all) {
    parameters += ", " + parameter.name + ": " + example_value(parameter, component.name);
  }
  return parameters.empty() ? component.name : "{type: " + component.name + parameters + "}";
}

std::string list_kinds(const std::vector<KindReference>& kinds) {
  TextTable table({Align::kLeft, Align::kRight, Align::kLeft});
  for (const KindReference& kind : kinds) {
    table.add({kind.plural, std::to_string(kind.components.size()), join(kind.names())});
  }
  return table.to_string("", kPageWidth);
}

std::string list_components(const KindReference& kind) {
  TextTable table({Align::kLeft, Align::kLeft});
  for (const ComponentReference& component : kind.components) {
    table.add({component.name, component.doc + (component.origin.empty() ? "" : " (" + component.origin + ")")});
  }
  return table.to_string("", kPageWidth);
}

std::string list_component(const KindReference& kind, const ComponentReference& component) {
  std::string text = component.name + " (" + kind.kind + "): " + component.doc + "\n";
  if (!component.origin.empty()) text += "from " + component.origin + "\n";
  text += "\n  " + example_of(component) + "\n";
  if (!component.parameters.empty()) text += "\n" + parameter_table(component.parameters);
  if (!kind.common.empty()) text += "\nevery " + kind.kind + " has as well\n\n" + parameter_table(kind.common);
  return text;
}

namespace {

constexpr const char* kGenerated =
    "<!-- Made by `trainrun list --markdown docs/reference`; edit the registry instead. -->\n\n";

std::string markdown_table(const std::vector<Parameter>& parameters) {
  const auto escaped = [](const std::string& text) {
    std::string result;
    for (const char byte : text) result += byte == '|' ? "\\|" : std::string(1, byte);
    return result;
  };
  std::string text = "| parameter | type | default | allowed | description |\n|---|---|---|---|---|\n";
  for (const Parameter& parameter : parameters) {
    const std::string value = default_text(parameter);
    text += "| `" + parameter.name + "` | " + escaped(parameter.type) + " | " +
            (parameter.required || value.empty() ? value : "`" + escaped(value) + "`") + " | " +
            escaped(allowed_text(parameter)) + " | " + escaped(doc_text(parameter)) + " |\n";
  }
  return text;
}

std::string kind_page(const KindReference& kind) {
  std::string title = kind.plural;
  title[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(title[0])));
  std::string text = "# " + title + "\n\n" + kGenerated;
  text += "| " + kind.kind + " | description |\n|---|---|\n";
  for (const ComponentReference& component : kind.components) {
    text += "| [`" + component.name + "`](#" + anchor(component.name) + ") | " + component.doc + " |\n";
  }
  if (!kind.common.empty()) {
    text += "\nEvery " + kind.kind + " also has these parameters:\n\n" + markdown_table(kind.common);
  }
  for (const ComponentReference& component : kind.components) {
    text += "\n## " + component.name + "\n\n" + component.doc + "\n\n```yaml\n" + example_of(component) + "\n```\n";
    if (!component.parameters.empty()) text += "\n" + markdown_table(component.parameters);
  }
  return text;
}

struct SectionReference {
  std::string path;  // "dataset"
  std::vector<Parameter> parameters;
};

template <class Section>
SectionReference section(const std::string& path) {
  return {path, Codec<Section>::fields().parameters()};
}

std::string recipe_page() {
  const std::vector<SectionReference> sections = {section<ModelSection>("model"),
                                                  section<WeightsSection>("model.weights"),
                                                  section<RoleSection>("models.NAME"),
                                                  section<DatasetSection>("dataset"),
                                                  section<FoldSection>("dataset.fold"),
                                                  section<DataloaderSection>("dataloader"),
                                                  section<SamplerSection>("dataloader.sampler"),
                                                  section<TrainingSection>("training"),
                                                  section<EvaluationSection>("evaluation"),
                                                  section<GradScalerSection>("grad_scaler"),
                                                  section<DistributedSection>("distributed"),
                                                  section<ShardingSection>("sharding"),
                                                  section<CheckpointSection>("checkpoint"),
                                                  section<KeepBestSection>("checkpoint.keep_best"),
                                                  section<LoggingSection>("logging")};
  std::string text = "# The recipe\n\n";
  text += kGenerated;
  text +=
      "A recipe is one YAML file. At its top level it may have `base` (a recipe, or a list of recipes, on which this "
      "one "
      "is based) and these keys:\n\n";
  text += markdown_table(Codec<Recipe>::fields().parameters());
  for (const SectionReference& section : sections) {
    text += "\n## " + section.path + "\n\n" + markdown_table(section.parameters);
  }
  return text;
}

/// What several data sets take as a mapping.
std::string parts_of_tables() {
  return "\n## A column of `columns`\n\n" + markdown_table(Codec<ColumnOptions>::fields().parameters()) +
         "\n## `split`\n\n" + markdown_table(Codec<SplitOptions>::fields().parameters());
}

}  // namespace

std::map<std::string, std::string> reference_pages(const Catalog& catalog) {
  std::map<std::string, std::string> pages = {
      {"recipe.md", recipe_page()}, {"errors.md", std::string("# Errors\n\n") + kGenerated + errors_markdown()}};
  std::string index =
      std::string("# Reference\n\n") + kGenerated + "- [The recipe](recipe.md)\n- [Errors](errors.md)\n";
  for (const KindReference& kind : kinds_of(catalog)) {
    pages[kind.plural + ".md"] = kind_page(kind);
    if (kind.kind == DatasetKind::kName) pages[kind.plural + ".md"] += parts_of_tables();
    index += "- [" + kind.plural + "](" + kind.plural + ".md): " + join(kind.names()) + "\n";
  }
  pages["README.md"] = index;
  return pages;
}

}  // namespace trainrun
