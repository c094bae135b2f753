#include "runner/recipe/recipe_schema.h"

#include <set>

#include "runner/recipe/recipe.h"

namespace trainrun {
namespace {

using nlohmann::json;

constexpr const char* kDefinitions = "#/definitions/";

std::string reference_to(const std::string& definition) { return kDefinitions + definition; }
std::string name_in(const std::string& reference) { return reference.substr(std::string(kDefinitions).size()); }

/// A component that is merged onto a base's: as `whole`, but nothing is required, not even the type. Without one, it
/// must be part of some component of its kind.
json partial_component(const json& whole) {
  json partial = whole;  // of a mapping and a bare name: catalog.cpp
  json& mapping = partial["then"];
  mapping.erase("required");
  json parts = json::array();
  for (json& one : mapping["allOf"]) {
    if (!one.contains("then")) continue;  // what all of the kind need to be whole
    json& then = one["then"];
    if (then.contains("allOf")) then = json(then["allOf"][0]);
    parts.push_back(then);
  }
  std::erase_if(mapping["allOf"].get_ref<json::array_t&>(), [](const json& one) { return !one.contains("then"); });
  mapping["allOf"].push_back({{"if", {{"required", {"type"}}}}, {"else", {{"anyOf", parts}}}});
  return partial;
}

/// Makes of a whole recipe's schema that of one with a `base`: what is missing may come from there, so nothing is
/// required. Mappings merge and may be parts; lists replace the base's and are whole. Adds the definitions of parts.
class Overlay {
 public:
  Overlay(const Catalog& catalog, json& definitions) : definitions_(definitions) {
    catalog.for_each([&]<class Kind>(const Registry<Kind>&) { kinds_.insert(Kind::kName); });
  }

  json of(json schema) {
    schema.erase("required");
    schema.erase("allOf");
    if (schema.contains("$ref")) schema["$ref"] = reference_to(part_of(name_in(schema["$ref"])));
    for (const char* key : {"properties", "anyOf"}) {
      if (!schema.contains(key)) continue;
      for (json& inner : schema[key]) inner = of(std::move(inner));
    }
    for (const char* key : {"then", "else"}) {
      if (schema.contains(key)) schema[key] = of(std::move(schema[key]));
    }
    json& others = schema["additionalProperties"];
    others = others.is_object() ? of(std::move(others)) : others;
    if (others.is_null()) schema.erase("additionalProperties");
    return schema;
  }

 private:
  std::string part_of(const std::string& definition) {
    if (!kinds_.contains(definition)) return definition;
    const std::string part = "part_of_" + definition;
    if (!definitions_.contains(part)) definitions_[part] = partial_component(definitions_[definition]);
    return part;
  }

  json& definitions_;
  std::set<std::string> kinds_;
};

}  // namespace

json recipe_schema(const Catalog& catalog) {
  SchemaContext context{catalog};
  json definitions = schema_definitions(catalog);
  json recipe = Codec<Recipe>::schema(context);
  json overlay = Overlay(catalog, definitions).of(recipe);
  const json base = {
      {"description", "recipes on which this one is based"},
      {"anyOf", {{{"type", "string"}}, {{"type", "array"}, {"items", {{"type", "string"}}}}, {{"type", "null"}}}}};
  recipe["properties"]["base"] = base;
  overlay["properties"]["base"] = base;
  definitions["recipe"] = recipe;
  definitions["overlay"] = overlay;
  const json has_base = {{"type", "object"},
                         {"required", {"base"}},
                         {"properties", {{"base", {{"not", {{"enum", {nullptr, json::array()}}}}}}}}};
  return {{"$schema", "http://json-schema.org/draft-07/schema#"},
          {"title", "trainrun recipe"},
          {"if", has_base},
          {"then", {{"$ref", reference_to("overlay")}}},
          {"else", {{"$ref", reference_to("recipe")}}},
          {"definitions", definitions}};
}

}  // namespace trainrun
