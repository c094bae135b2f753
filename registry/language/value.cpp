#include "registry/language/value.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <utility>

#include "registry/language/text_view.h"

namespace trainrun {
namespace {

/// [-+]? (digits [. digits?] | . digits) ([eE] [-+]? digits)?; leading zeros are left to the caller.
bool looks_like_number(std::string_view text) {
  size_t i = 0;
  if (i < text.size() && (text[i] == '-' || text[i] == '+')) ++i;
  size_t before = 0;
  size_t after = 0;
  while (i < text.size() && is_digit(text[i])) ++i, ++before;
  if (i < text.size() && text[i] == '.') {
    ++i;
    while (i < text.size() && is_digit(text[i])) ++i, ++after;
  }
  if (before + after == 0) return false;
  if (i < text.size() && (text[i] == 'e' || text[i] == 'E')) {
    ++i;
    if (i < text.size() && (text[i] == '-' || text[i] == '+')) ++i;
    const size_t start = i;
    while (i < text.size() && is_digit(text[i])) ++i;
    if (i == start) return false;
  }
  return i == text.size();
}

bool has_leading_zero(std::string_view text) {
  if (!text.empty() && (text[0] == '-' || text[0] == '+')) text.remove_prefix(1);
  return text.size() > 1 && text[0] == '0' && is_digit(text[1]);
}

}  // namespace

std::string Place::to_string() const {
  if (!file) return "";
  return *file + ":" + std::to_string(line) + ":" + std::to_string(column);
}

Value Value::null(Place place) {
  Value value;
  value.place_ = std::move(place);
  return value;
}

Value Value::scalar(std::string text, bool quoted, Place place) {
  Value value;
  value.kind_ = Kind::kScalar;
  value.text_ = std::move(text);
  value.quoted_ = quoted;
  value.place_ = std::move(place);
  return value;
}

Value Value::list(std::vector<Value> items, Place place) {
  Value value;
  value.kind_ = Kind::kList;
  value.items_ = std::move(items);
  value.place_ = std::move(place);
  return value;
}

Value Value::map(std::vector<Entry> entries, Place place) {
  Value value;
  value.kind_ = Kind::kMap;
  value.entries_ = std::move(entries);
  value.place_ = std::move(place);
  return value;
}

ScalarType Value::scalar_type() const {
  if (quoted_) return ScalarType::kString;
  if (text_.empty() || text_ == "~" || text_ == "null" || text_ == "Null" || text_ == "NULL") return ScalarType::kNull;
  if (text_ == "true" || text_ == "True" || text_ == "TRUE" || text_ == "false" || text_ == "False" ||
      text_ == "FALSE") {
    return ScalarType::kBool;
  }
  if (!looks_like_number(text_) || has_leading_zero(text_)) return ScalarType::kString;
  const bool integer = text_.find_first_of(".eE") == std::string::npos;
  return integer ? ScalarType::kInteger : ScalarType::kFloat;
}

const Value* Value::find(std::string_view key) const {
  const auto it = std::find_if(entries_.begin(), entries_.end(), [&](const Entry& entry) { return entry.key == key; });
  return it == entries_.end() ? nullptr : &it->value;
}

Value* Value::find(std::string_view key) { return const_cast<Value*>(std::as_const(*this).find(key)); }

void Value::set(std::string key, Place key_place, Value value) {
  for (Entry& entry : entries_) {
    if (entry.key == key) {
      entry = Entry{std::move(key), std::move(key_place), std::move(value)};
      return;
    }
  }
  entries_.push_back(Entry{std::move(key), std::move(key_place), std::move(value)});
}

void Value::erase(std::string_view key) {
  std::erase_if(entries_, [&](const Entry& entry) { return entry.key == key; });
}

std::string Value::describe() const {
  switch (kind_) {
    case Kind::kNull:
      return "null";
    case Kind::kList:
      return "a list";
    case Kind::kMap:
      return "a mapping";
    case Kind::kScalar:
      break;
  }
  switch (scalar_type()) {
    case ScalarType::kNull:
      return "null";
    case ScalarType::kBool:
    case ScalarType::kInteger:
    case ScalarType::kFloat:
      return text_;
    case ScalarType::kString:
      break;
  }
  return "'" + text_ + "'";
}

bool same_meaning(const Value& a, const Value& b) {
  if (a.kind() != b.kind()) return false;
  switch (a.kind()) {
    case Value::Kind::kNull:
      return true;
    case Value::Kind::kScalar:
      return a.text() == b.text() && a.scalar_type() == b.scalar_type();
    case Value::Kind::kList:
      return std::equal(a.items().begin(), a.items().end(), b.items().begin(), b.items().end(), same_meaning);
    case Value::Kind::kMap:
      break;
  }
  return a.entries().size() == b.entries().size() &&
         std::all_of(a.entries().begin(), a.entries().end(), [&](const Value::Entry& entry) {
           const Value* other = b.find(entry.key);
           return other && same_meaning(entry.value, *other);
         });
}

std::optional<double> parse_number(std::string_view text) {
  if (!looks_like_number(text) || has_leading_zero(text)) return std::nullopt;
  if (text[0] == '+') text.remove_prefix(1);
  double number = 0;
  const auto result = std::from_chars(text.data(), text.data() + text.size(), number);
  if (result.ec != std::errc() || !std::isfinite(number)) return std::nullopt;
  return number;
}

std::optional<int64_t> parse_integer(std::string_view text) {
  if (!looks_like_number(text) || has_leading_zero(text)) return std::nullopt;
  std::string_view digits = text[0] == '+' ? text.substr(1) : text;
  int64_t integer = 0;
  const auto result = std::from_chars(digits.data(), digits.data() + digits.size(), integer);
  if (result.ec == std::errc() && result.ptr == digits.data() + digits.size()) return integer;
  if (result.ec == std::errc::result_out_of_range) return std::nullopt;
  constexpr double kExact = 9007199254740992.0;  // 2^53: every integer below is a double
  const auto number = parse_number(text);
  if (!number || std::floor(*number) != *number || std::abs(*number) > kExact) return std::nullopt;
  return static_cast<int64_t>(*number);
}

}  // namespace trainrun
