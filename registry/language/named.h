#pragma once

#include <string>
#include <utility>
#include <vector>

#include "registry/language/codec.h"

namespace trainrun {

/// A mapping whose keys the recipe's author chooses, in the order written: `rename: {'^module\.': ''}`.
template <class T>
struct Named {
  std::vector<std::pair<std::string, T>> entries;

  const T* find(const std::string& name) const {
    for (const auto& [key, value] : entries) {
      if (key == name) return &value;
    }
    return nullptr;
  }
};

template <class T>
struct Codec<Named<T>> {
  static std::optional<Named<T>> read(const Value& value, Reader& reader) {
    if (!value.is_map()) {
      reader.error(value.place(), "expected a " + type_name() + ", found " + value.describe());
      return std::nullopt;
    }
    Named<T> result;
    for (const Value::Entry& entry : value.entries()) {
      const auto scope = reader.enter(entry.key);
      if (auto item = Codec<T>::read(entry.value, reader)) result.entries.emplace_back(entry.key, std::move(*item));
    }
    return result;
  }
  static nlohmann::json schema(SchemaContext& context) {
    return {{"type", "object"}, {"additionalProperties", Codec<T>::schema(context)}};
  }
  static nlohmann::json write(const Named<T>& value) {
    auto result = nlohmann::json::object();
    for (const auto& [key, item] : value.entries) result[key] = Codec<T>::write(item);
    return result;
  }
  static std::string type_name() { return "mapping of names to " + detail::plural(Codec<T>::type_name()); }
};

}  // namespace trainrun
