#pragma once

#include <map>
#include <string>
#include <vector>

#include "registry/catalog.h"

namespace trainrun {

/// What a registry says of one of its components.
struct ComponentReference {
  std::string name;
  std::string doc;
  std::string origin;  // "" for a built-in, else the plugin's file
  std::vector<Parameter> parameters;
  std::vector<std::string> wanted;       // of them: not required, but a rule wants this one or another
  std::vector<Parameter> wanted_of_all;  // the same of what every component of the kind has
};

/// What a registry says of itself.
struct KindReference {
  std::string kind;               // "layer"
  std::string plural;             // "layers"
  std::vector<Parameter> common;  // that every component of the kind has
  std::vector<ComponentReference> components;

  /// The component called `name`, or nullptr.
  const ComponentReference* find(const std::string& name) const;
  std::vector<std::string> names() const;
};

/// Every kind of component, in the catalog's order.
std::vector<KindReference> kinds_of(const Catalog& catalog);
/// The kind called `name`, in the singular or the plural, or nullptr.
const KindReference* find_kind(const std::vector<KindReference>& kinds, const std::string& name);

/// A use of the component as a recipe has it, with what it needs and no more: "{type: Linear, out_features: 10}",
/// "ReLU".
std::string example_of(const ComponentReference& component);

// Text for a console.
std::string list_kinds(const std::vector<KindReference>& kinds);
std::string list_components(const KindReference& kind);
std::string list_component(const KindReference& kind, const ComponentReference& component);

/// The reference pages, Markdown by file name: one for each kind, one for the recipe's sections, and an index.
std::map<std::string, std::string> reference_pages(const Catalog& catalog);

}  // namespace trainrun
