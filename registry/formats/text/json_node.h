#pragma once

#include <nlohmann/json_fwd.hpp>

#include <cstdint>
#include <initializer_list>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace trainrun {

/// A value of a JSON file that knows its place in it. Whatever is not as asked for is a DataError: "tokenizer.json:
/// model.vocab: expected an object".
class JsonNode {
 public:
  JsonNode(const std::string& file, const nlohmann::json& value, std::string path = "");

  [[noreturn]] void fail(const std::string& message) const;
  const nlohmann::json& value() const { return *value_; }
  const std::string& file() const { return *file_; }
  const std::string& path() const { return path_; }

  /// Throws unless this is an object without other keys than these.
  void only(std::initializer_list<std::string_view> keys) const;
  /// The value under the key, which must be there.
  JsonNode at(const std::string& key) const;
  /// The same, or nothing if the key is missing or its value is null.
  std::optional<JsonNode> find(const std::string& key) const;
  /// The elements of an array.
  std::vector<JsonNode> items() const;
  /// The members of an object, by their keys.
  std::vector<std::pair<std::string, JsonNode>> members() const;

  std::string text() const;
  /// A text of one character.
  char32_t character() const;
  bool flag() const;
  int64_t integer(int64_t least, int64_t most) const;
  double number() const;

  std::string text(const std::string& key) const { return at(key).text(); }
  bool flag(const std::string& key) const { return at(key).flag(); }
  bool flag(const std::string& key, bool otherwise) const;
  int64_t integer(const std::string& key, int64_t least, int64_t most) const { return at(key).integer(least, most); }
  std::optional<std::string> find_text(const std::string& key) const;

 private:
  const std::string* file_;
  const nlohmann::json* value_;
  std::string path_;
};

/// Reads a JSON file. Throws DataError.
nlohmann::json read_json_file(const std::string& path);

/// Ids of tokens are 32 bits wide, of which the sign is one.
constexpr int64_t kMostTokenId = std::numeric_limits<int32_t>::max() - 1;
/// How deep components may lie in each other, as a sequence in a sequence.
constexpr int kMostNesting = 32;
/// Files that are larger are refused; those of the largest vocabularies have some 40 MB.
constexpr uint64_t kMostTokenizerBytes = uint64_t{1} << 30;

}  // namespace trainrun
