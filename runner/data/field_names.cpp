#include "runner/data/field_names.h"

#include "registry/kinds/dataset_facts.h"
#include "registry/language/error.h"
#include "registry/language/text_forms.h"

namespace trainrun {

using nlohmann::json;

namespace {

std::string shown(const json& names) {
  constexpr size_t kMost = 20;
  return join_first(names.get<std::vector<std::string>>(), kMost, LeftOut::kCount);
}

}  // namespace

json names_of_fields(const Dataset& data) {
  json names = json::object();
  const DatasetInfo info = data.info();
  for (const FieldInfo& field : info.fields) {
    const FieldFacts facts = data.facts().field(field.name);
    if (!facts.class_names.empty()) names["classes"][field.name] = facts.class_names;
    if (!facts.names_within.empty()) names["columns"][field.name] = facts.names_within;
  }
  return names;
}

void require_same_names(const json& trained, const Dataset& data, const std::string& path) {
  const json found = names_of_fields(data);
  for (const auto& [kind, fields] : found.items()) {
    if (!trained.contains(kind)) continue;
    for (const auto& [field, names] : fields.items()) {
      if (!trained[kind].contains(field) || trained[kind][field] == names) continue;
      const std::string advice =
          kind == "columns" ? "; name them in one order by `features`" : "; list them in one order";
      throw DataError(path + ": the " + kind + " of '" + field + "' are " + shown(names) +
                      ", but those of dataset.train " + "are " + shown(trained[kind][field]) + advice);
    }
  }
}

}  // namespace trainrun
