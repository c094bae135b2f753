#include "runner/recipe/recipe_defaults.h"

#include <algorithm>
#include <cctype>
#include <functional>
#include <map>

#include "runner/recipe/recipe.h"

namespace trainrun {
namespace {

using nlohmann::json;

Value value_of(const json& written) {
  if (written.is_array()) {
    std::vector<Value> items;
    for (const json& item : written) items.push_back(value_of(item));
    return Value::list(std::move(items), {});
  }
  if (written.is_string()) return Value::scalar(written.get<std::string>(), true, {});
  if (written.is_number_float()) return Value::scalar(detail::number_text(written.get<double>()), false, {});
  return written.is_null() ? Value::null({}) : Value::scalar(written.dump(), false, {});
}

/// Writes the defaults of what `map` leaves out; those that are null only `with_null`.
void add_defaults(Value& map, const std::vector<Parameter>& parameters, bool with_null) {
  for (const Parameter& parameter : parameters) {
    const json& value = parameter.default_value;
    const bool is_nothing = value.is_object() || (value.is_array() && value.empty()) || (value.is_null() && !with_null);
    if (!parameter.required && !is_nothing && !map.find(parameter.name)) map.set(parameter.name, {}, value_of(value));
  }
}

/// The words of a parameter's type: "list", "of", "layers".
bool has_word(const std::string& type, const std::string& word) {
  const auto is_letter = [&](size_t i) {
    return i < type.size() && (std::isalpha(static_cast<unsigned char>(type[i])) || type[i] == '_');
  };
  for (size_t at = type.find(word); at != std::string::npos; at = type.find(word, at + 1)) {
    if (!is_letter(at + word.size()) && (at == 0 || !is_letter(at - 1))) return true;
  }
  return false;
}

/// Completes the components that stand in a value of one kind or another.
class Completion {
 public:
  explicit Completion(const Catalog& catalog) {
    catalog.for_each([&]<class Kind>(const Registry<Kind>& registry) {
      const std::string kind = Kind::kName;
      Known& known = kinds_[kind];
      known.plural = kind + (kind.ends_with('s') ? "es" : "s");
      known.common = Codec<typename Kind::Common>::fields().parameters();
      known.find = [&registry](const std::string& name) {
        const auto* entry = registry.find(name);
        return entry ? &entry->parameters : nullptr;
      };
    });
  }

  /// What stands for the parameters in a mapping of a section, or of a component of the kind `around`.
  void within(Value& map, const std::vector<Parameter>& parameters, const std::string& around = "") const {
    for (const Parameter& parameter : parameters) {
      Value* value = map.find(parameter.name);
      if (!value) continue;
      for (const auto& [kind, known] : kinds_) {
        if (has_word(parameter.type, kind) || has_word(parameter.type, known.plural)) {
          const bool is_part = kind == around && kind != LayerKind::kName;  // what counts for all stands around it
          of_kind(*value, kind, !is_part);
        }
      }
    }
  }

  void layers(Value& list) const { of_kind(list, LayerKind::kName, true); }

 private:
  struct Known {
    std::string plural;
    std::vector<Parameter> common;
    std::function<const std::vector<Parameter>*(const std::string&)> find;
  };

  /// A component, or a list of them, of which some may be lists.
  void of_kind(Value& value, const std::string& kind, bool with_common) const {
    const Known& known = kinds_.at(kind);
    for (Value& item : value.items()) of_kind(item, kind, with_common);
    const bool is_name = value.is_scalar() && value.scalar_type() == ScalarType::kString;
    const Value* type = value.is_map() ? value.find("type") : nullptr;
    if (!is_name && !(type && type->is_scalar())) return;
    const std::vector<Parameter>* parameters = known.find(is_name ? value.text() : type->text());
    if (!parameters) return;
    if (is_name) value = Value::map({{"type", value.place(), value}}, value.place());
    add_defaults(value, *parameters, false);
    if (with_common) add_defaults(value, known.common, false);
    within(value, *parameters, kind);
  }

  std::map<std::string, Known> kinds_;
};

template <class Section>
std::vector<Parameter> parameters_of() {
  return Codec<Section>::fields().parameters();
}

/// A section: made where it is missing and may be, left alone where it is not written as a mapping.
void complete_section(Value& parent, const std::string& key, const std::vector<Parameter>& parameters, bool make,
                      const Completion& completion) {
  if (make && !parent.find(key)) parent.set(key, {}, Value::map({}, {}));
  Value* section = parent.find(key);
  if (!section || !section->is_map()) return;
  add_defaults(*section, parameters, true);
  completion.within(*section, parameters);
}

}  // namespace

Value with_defaults(const Value& resolved, const Catalog& catalog) {
  Value recipe = resolved;
  const Completion completion(catalog);
  add_defaults(recipe, parameters_of<Recipe>(), true);
  completion.within(recipe, parameters_of<Recipe>());
  const auto section = [&]<class Section>(Value* parent, const char* key, bool make) {
    if (parent) complete_section(*parent, key, parameters_of<Section>(), make, completion);
  };
  section.operator()<ModelSection>(&recipe, "model", false);
  section.operator()<DatasetSection>(&recipe, "dataset", false);
  section.operator()<DataloaderSection>(&recipe, "dataloader", true);
  section.operator()<TrainingSection>(&recipe, "training", false);
  section.operator()<EvaluationSection>(&recipe, "evaluation", true);
  section.operator()<DistributedSection>(&recipe, "distributed", true);
  section.operator()<ShardingSection>(&recipe, "sharding", true);
  section.operator()<GradScalerSection>(&recipe, "grad_scaler", true);
  section.operator()<CheckpointSection>(&recipe, "checkpoint", true);
  section.operator()<LoggingSection>(&recipe, "logging", true);
  section.operator()<WeightsSection>(recipe.find("model"), "weights", false);
  section.operator()<SamplerSection>(recipe.find("dataloader"), "sampler", false);
  section.operator()<KeepBestSection>(recipe.find("checkpoint"), "keep_best", false);
  Value* blocks = recipe.find("model") ? recipe.find("model")->find("blocks") : nullptr;
  if (!blocks || !blocks->is_map()) return recipe;
  for (Value::Entry& block : blocks->entries()) {
    if (Value* layers = block.value.find("layers")) completion.layers(*layers);
  }
  return recipe;
}

std::string output_folder(const Recipe& recipe) { return recipe.output_dir.value_or("runs/" + recipe.name); }

}  // namespace trainrun
