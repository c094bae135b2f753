#include "runner/data/field_names.h"

#include "registry/data/data_details.h"
#include "registry/language/error.h"

namespace trainrun {

using nlohmann::json;

namespace {

std::string shown(const json& names) {
  constexpr size_t kMost = 20;
  auto words = names.get<std::vector<std::string>>();
  const size_t count = words.size();
  if (count > kMost) {
    words.resize(kMost);
    words.push_back("… (" + std::to_string(count) + " in all)");
  }
  return join(words);
}

}  // namespace

json names_of_fields(const Dataset& data) {
  json names = json::object();
  const DatasetInfo info = data.info();
  for (const FieldInfo& field : info.fields) {
    const std::vector<std::string> classes = class_names_of(data, field.name);
    const std::vector<std::string> columns = names_within_field(data, field.name);
    if (!classes.empty()) names["classes"][field.name] = classes;
    if (!columns.empty()) names["columns"][field.name] = columns;
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
