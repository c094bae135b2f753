#pragma once

#include <nlohmann/json.hpp>
#include <stdlib.h>
#include <zlib.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "registry/catalog.h"

namespace trainrun::test {

/// A folder of its own for one test, removed at its end.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "trainrun-test-XXXXXX").string();
    if (!mkdtemp(pattern.data())) throw std::runtime_error("cannot make " + pattern);
    path_ = pattern;
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  std::string path(const std::string& name = "") const {
    return name.empty() ? path_.string() : (path_ / name).string();
  }
  /// Writes a file (and the folders above it) and returns its path.
  std::string write(const std::string& name, const std::string& content) const {
    std::filesystem::create_directories((path_ / name).parent_path());
    std::ofstream file(path_ / name, std::ios::binary);
    file << content;
    return path(name);
  }

 private:
  std::filesystem::path path_;
};

inline std::string read_text(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

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

/// The message of the E that `body` throws.
template <class E, class Body>
std::string message_of(const Body& body) {
  try {
    body();
  } catch (const E& error) {
    return error.what();
  }
  return "(nothing was thrown)";
}

inline bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace trainrun::test
