#include "registry/catalog.h"

namespace trainrun {

const LayerRegistry& registry_of(const Catalog& catalog, LayerKind) { return catalog.layers; }
const LossRegistry& registry_of(const Catalog& catalog, LossKind) { return catalog.losses; }
const MetricRegistry& registry_of(const Catalog& catalog, MetricKind) { return catalog.metrics; }
const DatasetRegistry& registry_of(const Catalog& catalog, DatasetKind) { return catalog.datasets; }
const TransformRegistry& registry_of(const Catalog& catalog, TransformKind) { return catalog.transforms; }
const OptimizerRegistry& registry_of(const Catalog& catalog, OptimizerKind) { return catalog.optimizers; }
const SchedulerRegistry& registry_of(const Catalog& catalog, SchedulerKind) { return catalog.schedulers; }
const LoggerRegistry& registry_of(const Catalog& catalog, LoggerKind) { return catalog.loggers; }

namespace {

using nlohmann::json;

/// The mapping form of one component: its own parameters, the kind's common ones, and `type`.
json mapping_schema(const std::string& type, std::vector<Parameter> parameters, const std::vector<Parameter>& common,
                    const std::string& doc, SchemaContext& context) {
  parameters.insert(parameters.end(), common.begin(), common.end());
  json schema = detail::object_schema(parameters, context);
  schema["properties"]["type"] = {{"const", type}};
  schema["required"].push_back("type");
  schema["description"] = doc;
  return schema;
}

/// A layer's type may also be a block of the recipe, which no schema can know.
template <class Kind>
constexpr bool kOpen = std::is_same_v<Kind, LayerKind>;

template <class Kind>
void define(const Registry<Kind>& registry, SchemaContext& context, json& definitions) {
  const std::string kind = Kind::kName;
  const auto common = Codec<typename Kind::Common>::fields().parameters();
  json cases = json::array();
  json bare_names = json::array();
  for (const auto& [name, entry] : registry.entries()) {
    definitions[kind + "." + name] = mapping_schema(name, entry.parameters, common, entry.doc, context);
    cases.push_back(
        {{"if", {{"type", "object"}, {"required", {"type"}}, {"properties", {{"type", {{"const", name}}}}}}},
         {"then", {{"$ref", "#/$defs/" + kind + "." + name}}}});
    const bool needs_more = std::any_of(entry.parameters.begin(), entry.parameters.end(),
                                        [](const Parameter& parameter) { return parameter.required; });
    if (!needs_more) bare_names.push_back(name);
  }
  json bare = {{"type", "string"}, {"enum", bare_names}};
  json type = {{"type", "string"}, {"enum", registry.names()}};
  if (kOpen<Kind>) {
    json needy = json::array();
    for (const std::string& name : registry.names()) {
      if (std::find(bare_names.begin(), bare_names.end(), name) == bare_names.end()) needy.push_back(name);
    }
    bare = {{"type", "string"}, {"not", {{"enum", needy}}}};
    type = {{"type", "string"}};
  }
  definitions[kind] = {
      {"anyOf",
       {bare, {{"type", "object"}, {"required", {"type"}}, {"properties", {{"type", type}}}, {"allOf", cases}}}}};
}

}  // namespace

json schema_definitions(const Catalog& catalog) {
  SchemaContext context{catalog};
  json definitions = json::object();
  definitions["interpolation"] = {{"type", "string"}, {"pattern", "^\\$\\{.+\\}$"}};
  catalog.for_each([&](const auto& registry) { define(registry, context, definitions); });
  return definitions;
}

}  // namespace trainrun
