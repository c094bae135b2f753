#pragma once

#include <vector>

#include "registry/catalog.h"
#include "registry/formats/web/named_sources.h"

namespace trainrun {

/// A name of a published model, tokenizer or file of weights in a recipe.
struct PublishedName {
  Place place;
  std::string path;  // "model.layers[0].pretrained"
  NamedSource source;
  bool is_model = false;  // whose config.json is needed before its shapes are known
};

/// Those that built-in components of the recipe have, in its order; opens no network. What is wrong with one is left to
/// whoever needs it.
std::vector<PublishedName> published_names(const Value& resolved, const Catalog& catalog);

}  // namespace trainrun
