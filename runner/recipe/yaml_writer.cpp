#include <algorithm>
#include <cctype>
#include <cstdint>

#include "registry/language/hex.h"
#include "registry/language/text_forms.h"
#include "registry/language/utf8.h"
#include "runner/recipe/yaml.h"

namespace trainrun {
namespace {

constexpr size_t kMaxWidth = 100;  // of a list or map on one line
constexpr size_t kIndent = 2;

bool is_printable_text(std::string_view text) {
  size_t offset = 0;
  while (offset < text.size()) {
    const uint32_t code_point = next_code_point(text, offset);
    if (code_point == kInvalidCodePoint || code_point == '\n' || code_point == '\t' || !is_printable(code_point)) {
      return false;
    }
  }
  return true;
}

/// Whether a reader of YAML 1.1 (PyYAML) would take this text for a boolean, a number, a date or a merge.
bool is_special_in_yaml_1_1(std::string_view text) {
  std::string folded;
  for (const char c : text) folded += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  static const std::vector<std::string> words = {"y",  "n", "yes",  "no",    "on",    "off",
                                                 "<<", "=", ".inf", "-.inf", "+.inf", ".nan"};
  if (std::find(words.begin(), words.end(), folded) != words.end()) return true;
  const bool starts_as_number =
      folded.find_first_of("0123456789") <= 1 && folded.find_first_not_of("+-.0123456789") != 0;
  return starts_as_number && folded.find_first_not_of("0123456789abcdefoxtz_:.+- ") == std::string::npos;
}

/// Whether `text` without quotes is one plain scalar with just this text.
bool can_be_plain(std::string_view text, bool in_flow) {
  if (text.empty() || !is_printable_text(text)) return false;
  if (text.front() == ' ' || text.back() == ' ' || text.back() == ':') return false;
  if (std::string_view(",[]{}#&*!|>'\"%@`?:").find(text.front()) != std::string_view::npos) return false;
  if (text == "-" || text.starts_with("- ") || text.starts_with("---") || text.starts_with("...")) return false;
  if (text.find(": ") != std::string_view::npos || text.find(" #") != std::string_view::npos) return false;
  return !in_flow || text.find_first_of(",[]{}?") == std::string_view::npos;  // '?': yaml-cpp 0.7 takes "a?]" for a key
}

std::string in_double_quotes(std::string_view text) {
  std::string quoted = "\"";
  size_t offset = 0;
  while (offset < text.size()) {
    const size_t start = offset;
    const uint32_t code_point = next_code_point(text, offset);
    if (code_point == kInvalidCodePoint) {
      quoted += "\\uFFFD";
      ++offset;
    } else if (code_point == '\n') {
      quoted += "\\n";
    } else if (code_point == '\t') {
      quoted += "\\t";
    } else if (code_point == '"' || code_point == '\\') {
      quoted += {'\\', static_cast<char>(code_point)};
    } else if (!is_printable(code_point)) {
      quoted += code_point <= 0xFFFF ? "\\u" + hex_number(code_point, 4, HexCase::kUpper)
                                     : "\\U" + hex_number(code_point, 8, HexCase::kUpper);
    } else {
      quoted += text.substr(start, offset - start);
    }
  }
  return quoted + "\"";
}

std::string in_quotes(std::string_view text) {
  if (!is_printable_text(text)) return in_double_quotes(text);
  return in_marks(text, '\'');
}

std::string text_to_yaml(const std::string& text, bool in_flow) {
  const bool reads_as_text = Value::scalar(text, /*quoted=*/false, {}).scalar_type() == ScalarType::kString;
  const bool plain = reads_as_text && !is_special_in_yaml_1_1(text) && can_be_plain(text, in_flow);
  return plain ? text : in_quotes(text);
}

std::string scalar_to_yaml(const Value& value, bool in_flow) {
  if (value.is_null()) return "null";
  switch (value.scalar_type()) {
    case ScalarType::kNull:
      return "null";
    case ScalarType::kBool:
    case ScalarType::kInteger:
    case ScalarType::kFloat:
      return value.text();
    case ScalarType::kString:
      break;
  }
  return text_to_yaml(value.text(), in_flow);
}

bool is_simple(const Value& value) { return value.is_null() || value.is_scalar(); }

/// Simple enough to be read on one line: what a person would write so.
bool suits_one_line(const Value& value, int levels = 2) {
  if (is_simple(value)) return true;
  const auto suits = [&](const Value& inner) {
    return is_simple(inner) || (levels > 1 && suits_one_line(inner, levels - 1));
  };
  if (value.is_map()) {
    return std::all_of(value.entries().begin(), value.entries().end(),
                       [&](const auto& entry) { return suits(entry.value); });
  }
  return std::all_of(value.items().begin(), value.items().end(),
                     [&](const Value& item) { return !item.is_map() && suits(item); });
}

void write_on_one_line(const Value& value, bool in_flow, std::string& text) {
  if (value.is_map()) {
    const char* separator = "{";
    for (const Value::Entry& entry : value.entries()) {
      text.append(separator).append(text_to_yaml(entry.key, /*in_flow=*/true)).append(": ");
      write_on_one_line(entry.value, /*in_flow=*/true, text);
      separator = ", ";
    }
    text += value.entries().empty() ? "{}" : "}";
  } else if (value.is_list()) {
    const char* separator = "[";
    for (const Value& item : value.items()) {
      text.append(separator);
      write_on_one_line(item, /*in_flow=*/true, text);
      separator = ", ";
    }
    text += value.items().empty() ? "[]" : "]";
  } else {
    text += scalar_to_yaml(value, in_flow);
  }
}

bool is_empty(const Value& value) { return value.items().empty() && value.entries().empty(); }

/// The value behind "key: " or "- ", which are `lead_width` wide, if it can stand on that line; "" otherwise.
std::string on_the_same_line(const Value& value, size_t lead_width) {
  if (!is_empty(value) && !suits_one_line(value)) return "";
  std::string text;
  write_on_one_line(value, /*in_flow=*/false, text);
  return is_empty(value) || lead_width + count_code_points(text) <= kMaxWidth ? text : "";
}

void write_block(const Value& value, size_t indent, std::string& text) {
  for (const Value::Entry& entry : value.entries()) {
    const size_t line_start = text.size();
    text.append(indent, ' ').append(text_to_yaml(entry.key, /*in_flow=*/false)).append(":");
    const std::string rest = on_the_same_line(entry.value, count_code_points(text.substr(line_start)) + 1);
    if (rest.empty()) {
      text += '\n';
      write_block(entry.value, indent + kIndent, text);
    } else {
      text.append(" ").append(rest).append("\n");
    }
  }
  for (const Value& item : value.items()) {
    const size_t line_start = text.size();
    const std::string rest = on_the_same_line(item, indent + kIndent);
    if (rest.empty()) {
      write_block(item, indent + kIndent, text);
      text[line_start + indent] = '-';  // in the margin of the item's first line
    } else {
      text.append(indent, ' ').append("- ").append(rest).append("\n");
    }
  }
}

}  // namespace

std::string to_yaml(const Value& value) {
  std::string text;
  if (is_empty(value)) {
    write_on_one_line(value, /*in_flow=*/false, text);
    text += '\n';
  } else {
    write_block(value, 0, text);
  }
  return text;
}

}  // namespace trainrun
