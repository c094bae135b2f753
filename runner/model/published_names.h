#pragma once

#include <vector>

#include "registry/catalog.h"
#include "registry/formats/web/named_sources.h"

namespace trainrun {

/// A name of a published model, tokenizer, file of weights or data set in a recipe.
struct PublishedName {
  Place place;
  std::string path;  // "model.layers[0].pretrained"
  NamedSource source;
  bool tells_shapes = false;  // a model, whose config.json is needed before its shapes are known, or a data set
  bool is_data = false;
};

/// Whether a data set of this type is built-in. (A plugin's words are its own.)
bool is_builtin_dataset(const Value& dataset, const Catalog& catalog);

/// Those that built-in components of the recipe have, in its order; opens no network. What is wrong with one is left to
/// whoever needs it.
std::vector<PublishedName> published_names(const Value& resolved, const Catalog& catalog);

}  // namespace trainrun
