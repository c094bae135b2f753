#pragma once

#include <nlohmann/json.hpp>
#include <zlib.h>

#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "registry/catalog.h"
#include "tests/support.h"
#include "tests/temporary_folder.h"

namespace trainrun::test {

/// As zlib packs it at `level`; `window_bits` says in which format.
inline std::string packed(const std::string& content, int level, int window_bits) {
  z_stream stream{};
  deflateInit2(&stream, level, Z_DEFLATED, window_bits, 8, Z_DEFAULT_STRATEGY);
  std::string result(deflateBound(&stream, content.size()), '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(content.data()));
  stream.avail_in = static_cast<uInt>(content.size());
  stream.next_out = reinterpret_cast<Bytef*>(result.data());
  stream.avail_out = static_cast<uInt>(result.size());
  deflate(&stream, Z_FINISH);
  result.resize(stream.total_out);
  deflateEnd(&stream);
  return result;
}
inline std::string gzip(const std::string& content) { return packed(content, Z_BEST_SPEED, 15 + 16); }
/// Without a header, as in a zip archive.
inline std::string deflated(const std::string& content) { return packed(content, Z_BEST_COMPRESSION, -15); }

/// The mapping as a recipe would have it.
inline Value value_of(const nlohmann::json& json) {
  if (json.is_null()) return Value::null({});
  if (json.is_string()) return Value::scalar(json.get<std::string>(), true, {});
  if (json.is_array()) {
    std::vector<Value> items;
    for (const auto& item : json) items.push_back(value_of(item));
    return Value::list(std::move(items), {});
  }
  if (!json.is_object()) return Value::scalar(json.dump(), false, {});
  std::vector<Value::Entry> entries;
  for (const auto& [key, item] : json.items()) entries.push_back({key, {}, value_of(item)});
  return Value::map(std::move(entries), {});
}

/// Reads and builds a component of the data families. Throws RecipeError.
template <class Kind>
typename Kind::Product build(const std::string& json) {
  static const Catalog catalog = builtins();
  std::vector<Problem> problems;
  Reader reader(catalog, problems);
  const auto component = Codec<Component<Kind>>::read(value_of(nlohmann::json::parse(json)), reader);
  if (!component) throw RecipeError(problems);
  return component->build({});
}

inline std::unique_ptr<Dataset> dataset(const std::string& json) { return build<DatasetKind>(json); }
inline std::unique_ptr<Transform> transform(const std::string& json) { return build<TransformKind>(json); }

/// Built and opened.
inline std::unique_ptr<Dataset> open_dataset(const std::string& json) {
  auto result = dataset(json);
  result->open();
  return result;
}

}  // namespace trainrun::test
