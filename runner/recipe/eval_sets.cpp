#include "runner/recipe/eval_sets.h"

#include <algorithm>

#include "registry/catalog.h"
#include "registry/language/name_regex.h"

namespace trainrun {
namespace {

constexpr const char* kName = "^[A-Za-z0-9][A-Za-z0-9_.-]*$";

/// What is wrong with the name of a set, of which figures are named: "eval/clean/accuracy"; "" for nothing.
std::string name_fault(const std::string& name) {
  if (name == "loss") return "a set that is named loss would give figures that look like losses; name it otherwise";
  if (regex_of(kName).is_in(name)) return "";
  return "is the name of a set of evaluation data, and figures are named after it: write letters, digits, '_', '-', "
         "'.'";
}

/// Whether each entry is a data set of its own; where only `type` was forgotten, it is one.
bool is_several(const Value& value, const Reader& reader) {
  if (!value.is_map() || value.find("type") || value.entries().empty()) return false;
  return std::all_of(value.entries().begin(), value.entries().end(), [&](const Value::Entry& entry) {
    const Value& data = entry.value;
    return data.is_map() || (data.is_scalar() && reader.catalog().datasets.find(data.text()));
  });
}

/// Several sets that were merged into one, which the recipe has; the place of the first, or null.
const Value::Entry* merged_set(const Value& value, const Reader& reader) {
  const Value* type = value.is_map() ? value.find("type") : nullptr;
  const auto* one = type && type->is_scalar() ? reader.catalog().datasets.find(type->text()) : nullptr;
  if (!one) return nullptr;
  for (const Value::Entry& entry : value.entries()) {
    const auto is_it = [&](const Parameter& parameter) { return parameter.name == entry.key; };
    const bool is_known = std::any_of(one->parameters.begin(), one->parameters.end(), is_it);
    if (!is_known && entry.value.is_map() && entry.value.find("type")) return &entry;
  }
  return nullptr;
}

}  // namespace

std::optional<EvalSets> Codec<EvalSets>::read(const Value& value, Reader& reader) {
  EvalSets result;
  if (const Value::Entry* set = merged_set(value, reader)) {
    const auto scope = reader.enter(set->key);
    reader.error(set->key_place, "is a set of evaluation data beside the " + value.find("type")->text() +
                                     " that is there already, and mappings merge; to have it in the other's place, "
                                     "write dataset.eval=null before it on the command line");
    return std::nullopt;
  }
  if (!is_several(value, reader)) {
    auto one = Codec<Component<DatasetKind>>::read(value, reader);
    if (!one) return std::nullopt;
    result.sets.push_back({"", std::move(*one)});
    return result;
  }
  for (const Value::Entry& entry : value.entries()) {
    const auto scope = reader.enter(entry.key);
    if (const std::string fault = name_fault(entry.key); !fault.empty()) reader.error(entry.key_place, fault);
    auto one = Codec<Component<DatasetKind>>::read(entry.value, reader);
    if (one) result.sets.push_back({entry.key, std::move(*one)});
  }
  if (result.sets.size() != value.entries().size()) return std::nullopt;
  return result;
}

nlohmann::json Codec<EvalSets>::schema(SchemaContext& context) {
  const nlohmann::json one = Codec<Component<DatasetKind>>::schema(context);
  const nlohmann::json several = {{"type", "object"},
                                  {"minProperties", 1},
                                  {"propertyNames", {{"pattern", kName}, {"not", {{"const", "loss"}}}}},
                                  {"additionalProperties", one}};
  const nlohmann::json named = {{"type", "object"}, {"not", {{"required", {"type"}}}}};
  return {{"if", named}, {"then", several}, {"else", one}};
}

nlohmann::json Codec<EvalSets>::write(const EvalSets& sets) {
  if (sets.sets.size() == 1 && sets.sets[0].name.empty()) {
    return Codec<Component<DatasetKind>>::write(sets.sets[0].data);
  }
  auto result = nlohmann::json::object();
  for (const EvalSets::One& one : sets.sets) result[one.name] = Codec<Component<DatasetKind>>::write(one.data);
  return result;
}

}  // namespace trainrun
