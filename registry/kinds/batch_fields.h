#pragma once

#include <string>
#include <vector>

#include "registry/language/codec.h"

namespace trainrun {

/// The type of a layer's parameter that names fields of the batch. Where the recipe gives the layer no `inputs`, those
/// of them that there are flow into it after the one that would anyway, under their names.
struct BatchFields : std::vector<std::string> {
  using std::vector<std::string>::vector;
};

template <>
struct Codec<BatchFields> {
  static std::optional<BatchFields> read(const Value& value, Reader& reader) {
    auto list = Codec<std::vector<std::string>>::read(value, reader);
    if (!list) return std::nullopt;
    return BatchFields(list->begin(), list->end());
  }
  static nlohmann::json schema(SchemaContext& context) { return Codec<std::vector<std::string>>::schema(context); }
  static nlohmann::json write(const BatchFields& value) { return Codec<std::vector<std::string>>::write(value); }
  static std::string type_name() { return "list of fields of the batch"; }
};

}  // namespace trainrun
