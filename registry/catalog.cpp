#include "registry/catalog.h"

#include <algorithm>

namespace trainrun {

const LayerRegistry& registry_of(const Catalog& catalog, LayerKind) { return catalog.layers; }
const InitializerRegistry& registry_of(const Catalog& catalog, InitializerKind) { return catalog.initializers; }
const LossRegistry& registry_of(const Catalog& catalog, LossKind) { return catalog.losses; }
const MetricRegistry& registry_of(const Catalog& catalog, MetricKind) { return catalog.metrics; }
const DatasetRegistry& registry_of(const Catalog& catalog, DatasetKind) { return catalog.datasets; }
const TransformRegistry& registry_of(const Catalog& catalog, TransformKind) { return catalog.transforms; }
const OptimizerRegistry& registry_of(const Catalog& catalog, OptimizerKind) { return catalog.optimizers; }
const SchedulerRegistry& registry_of(const Catalog& catalog, SchedulerKind) { return catalog.schedulers; }
const CommHookRegistry& registry_of(const Catalog& catalog, CommHookKind) { return catalog.comm_hooks; }
const CallbackRegistry& registry_of(const Catalog& catalog, CallbackKind) { return catalog.callbacks; }
const LoggerRegistry& registry_of(const Catalog& catalog, LoggerKind) { return catalog.loggers; }
const AdapterRegistry& registry_of(const Catalog& catalog, AdapterKind) { return catalog.adapters; }

namespace {

using nlohmann::json;

json reference_to(const std::string& definition) { return {{"$ref", "#/definitions/" + definition}}; }

/// One of `words`, or a text with a `${…}`.
json one_of_names(const std::vector<std::string>& words) {
  if (words.empty()) return reference_to("interpolated_text");
  return {{"if", reference_to("interpolated_text")}, {"else", {{"type", "string"}, {"enum", words}}}};
}

/// Of a component that has the parameters `own`.
json properties_of(const std::vector<Parameter>& parameters, const std::vector<Parameter>& own,
                   const SchemaContext& context) {
  SchemaContext within{context.catalog, &own};
  return detail::properties_schema(parameters, within)["properties"];
}

template <class Kind>
void define(const Registry<Kind>& registry, const SchemaContext& context, json& definitions) {
  const std::string kind = Kind::kName;
  const auto& common = Codec<typename Kind::Common>::fields();
  const json shared = properties_of(common.parameters(), {}, context);
  json cases = json::array();
  std::vector<std::string> bare_names;
  std::vector<std::string> needy_names;
  for (const auto& [name, entry] : registry.entries()) {
    const std::string definition = kind + "." + name;
    json properties = properties_of(entry.parameters, entry.parameters, context);
    properties["type"] = {{"const", name}};
    const json also = properties_of(common.parameters(), entry.parameters, context);
    for (const auto& [key, schema] : also.items()) {
      properties[key] = schema;
      if (schema != shared[key]) continue;  // param_groups have the optimizer's own parameters
      definitions["every_" + kind]["properties"][key] = schema;
      properties[key] = reference_to("every_" + kind + "/properties/" + key);
    }
    definitions[definition] = {
        {"type", "object"}, {"description", entry.doc}, {"properties", properties}, {"additionalProperties", false}};
    const json whole = detail::whole_schema(entry.parameters, entry.relations);
    json then = reference_to(definition);
    if (!whole.empty()) then = {{"allOf", {then, whole}}};
    cases.push_back(
        {{"if", {{"type", "object"}, {"required", {"type"}}, {"properties", {{"type", {{"const", name}}}}}}},
         {"then", then}});
    const bool wants_one_of = !entry.wanted.empty() || !common.wanted().empty();
    (whole.contains("required") || wants_one_of ? needy_names : bare_names).push_back(name);
  }
  const json whole = detail::whole_schema(common.parameters(), common.relations());
  if (!whole.empty()) cases.push_back(whole);
  json bare = one_of_names(bare_names);
  json type = one_of_names(registry.names());
  if constexpr (std::is_same_v<Kind, LayerKind>) {  // the type may be a block of the recipe, which no schema can know
    bare = {{"type", "string"}, {"not", {{"enum", needy_names}}}};
    type = {{"type", "string"}};
  }
  const json mapping = {{"type", "object"}, {"required", {"type"}}, {"properties", {{"type", type}}}, {"allOf", cases}};
  definitions[kind] = {{"type", {"string", "object"}}, {"if", {{"type", "object"}}}, {"then", mapping}, {"else", bare}};
}

/// A layer whose type is registered, or a list of such layers: all that there is in a model without blocks.
json known_layer(const LayerRegistry& layers, SchemaContext& context) {
  const json itself = reference_to("known_layer");
  const json known = one_of_names(layers.names());
  json properties = {{"type", known}};
  for (const auto& [name, entry] : layers.entries()) {
    for (const Parameter& parameter : entry.parameters) {
      const bool holds_layers = parameter.schema(context).dump().find("\"#/definitions/layer\"") != std::string::npos;
      if (holds_layers) properties[parameter.name] = itself;
    }
  }
  const json bare = {{"if", {{"type", "string"}}}, {"then", known}};
  return {{"allOf", json::array({bare})}, {"items", itself}, {"properties", properties}};
}

/// An initializer's mapping with a `match`: the parameters that it is for.
json initializer_rule(const json& definitions) {
  json rule = definitions["initializer"]["then"];  // of a mapping and a bare name
  rule["required"].push_back("match");
  for (const auto& [name, definition] : definitions.items()) {
    if (!name.starts_with("initializer.")) continue;
    json mapping = definition;
    mapping["properties"]["match"] = {{"type", "string"}, {"format", "regex"}};
    for (json& one : rule["allOf"]) {
      json& then = one["then"];
      json& part = then.contains("allOf") ? then["allOf"][0] : then;
      if (part == reference_to(name)) part = mapping;
    }
  }
  return rule;
}

}  // namespace

json schema_definitions(const Catalog& catalog) {
  SchemaContext context{catalog};
  json definitions = json::object();
  definitions["interpolation"] = {{"type", "string"}, {"pattern", "^\\$\\{.+\\}$"}};
  definitions["interpolated_text"] = {{"type", "string"}, {"pattern", "(^|[^$])\\$\\{.+\\}"}};
  catalog.for_each([&](const auto& registry) { define(registry, context, definitions); });
  definitions["initializer_rule"] = initializer_rule(definitions);
  definitions["known_layer"] = known_layer(catalog.layers, context);
  return definitions;
}

}  // namespace trainrun
