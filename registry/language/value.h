#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace trainrun {

/// Where something was written. `file` is a path as the user gave it, or "command line". Lines and columns count
/// from 1.
struct Place {
  std::shared_ptr<const std::string> file;
  int line = 0;
  int column = 0;

  /// "recipes/a.yaml:14:9", or "" for a place in no file.
  std::string to_string() const;
};

/// What a plain (unquoted) scalar means by the YAML 1.2 core schema.
enum class ScalarType { kNull, kBool, kInteger, kFloat, kString };

/// One node of a recipe: null, scalar, list or map, knowing its place. Scalars keep their text: what "no" or "1e-3"
/// means is decided by the parameter that reads it, not by YAML. Maps keep their order; keys are unique.
class Value {
 public:
  enum class Kind { kNull, kScalar, kList, kMap };
  struct Entry;

  Value() = default;
  static Value null(Place place);
  static Value scalar(std::string text, bool quoted, Place place);
  static Value list(std::vector<Value> items, Place place);
  static Value map(std::vector<Entry> entries, Place place);

  Kind kind() const { return kind_; }
  bool is_null() const { return kind_ == Kind::kNull; }
  bool is_scalar() const { return kind_ == Kind::kScalar; }
  bool is_list() const { return kind_ == Kind::kList; }
  bool is_map() const { return kind_ == Kind::kMap; }

  const Place& place() const { return place_; }
  const std::string& text() const { return text_; }
  bool quoted() const { return quoted_; }
  /// kString for a quoted scalar; by the YAML 1.2 core schema otherwise. Only for scalars.
  ScalarType scalar_type() const;

  const std::vector<Value>& items() const { return items_; }
  std::vector<Value>& items() { return items_; }
  const std::vector<Entry>& entries() const { return entries_; }
  std::vector<Entry>& entries() { return entries_; }

  /// The value under `key` of a map, or nullptr (also if this is not a map).
  const Value* find(std::string_view key) const;
  Value* find(std::string_view key);
  /// Sets `key` of a map, in its old position if it was there, at the end otherwise.
  void set(std::string key, Place key_place, Value value);
  /// The map without `key`.
  void erase(std::string_view key);

  /// "a number", "a list", …: for error messages.
  std::string describe() const;

 private:
  Kind kind_ = Kind::kNull;
  Place place_;
  std::string text_;
  bool quoted_ = false;
  std::vector<Value> items_;
  std::vector<Entry> entries_;
};

struct Value::Entry {
  std::string key;
  Place key_place;
  Value value;
};

/// Equal in meaning: kind, scalar type and text, items, and entries in any order. Places do not count.
bool same_meaning(const Value& a, const Value& b);

/// Reads a decimal integer ("12", "-3"; also "1e3", "4.0": exact) or nothing. A leading zero ("010") is refused.
std::optional<int64_t> parse_integer(std::string_view text);
/// Reads a finite decimal number ("1e-3", ".5") or nothing.
std::optional<double> parse_number(std::string_view text);

}  // namespace trainrun
