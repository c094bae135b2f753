#include "runner/interop/python/expression.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <string_view>

#include "runner/base/text.h"

namespace trainrun::python {
namespace {

constexpr size_t kMaxWidth = 110;
constexpr size_t kIndent = 4;
constexpr std::array kKeywords = {
    "False", "None", "True", "and",    "as",     "assert", "async",  "await", "break",  "class",   "continue", "def",
    "del",   "elif", "else", "except", "for",    "from",   "global", "if",    "import", "in",      "is",       "lambda",
    "not",   "or",   "pass", "raise",  "return", "try",    "while",  "with",  "yield",  "finally", "nonlocal"};

std::string comma_separated(const std::vector<std::string>& items) {
  std::string text;
  for (const std::string& item : items) text += (text.empty() ? "" : ", ") + item;
  return text;
}

std::string tuple(const std::vector<std::string>& items) {
  return "(" + comma_separated(items) + (items.size() == 1 ? "," : "") + ")";
}

std::string named(const Expression::Argument& argument, const std::string& value) {
  return argument.is_positional || argument.name.empty() ? value : argument.name + "=" + value;
}

}  // namespace

std::string quoted(const std::string& text) {
  // JSON's escapes are Python's, but for \/, which is not written; characters outside ASCII stay as they are.
  return nlohmann::json(text).dump();
}

std::string pattern(const std::string& text) {
  const bool is_plain = text.find('\\') == std::string::npos;
  const bool is_raw = !is_plain && text.find('"') == std::string::npos && text.back() != '\\';
  return is_raw ? "r\"" + text + "\"" : quoted(text);
}

std::string literal(const nlohmann::json& value) {
  if (value.is_null()) return "None";
  if (value.is_boolean()) return value.get<bool>() ? "True" : "False";
  if (value.is_number_float() && !std::isfinite(value.get<double>())) {
    const auto number = value.get<double>();
    return std::isnan(number) ? "float(\"nan\")" : number > 0 ? "float(\"inf\")" : "float(\"-inf\")";
  }
  std::vector<std::string> items;
  if (value.is_array()) {
    for (const auto& item : value) items.push_back(literal(item));
    return tuple(items);
  }
  if (value.is_object()) {
    for (const auto& [key, item] : value.items()) items.push_back(quoted(key) + ": " + literal(item));
    return "{" + comma_separated(items) + "}";
  }
  return value.is_string() ? quoted(value.get<std::string>()) : value.dump();
}

std::string literal(const Value& value) {
  std::vector<std::string> items;
  if (value.is_list()) {
    for (const Value& item : value.items()) items.push_back(literal(item));
    return tuple(items);
  }
  if (value.is_map()) {
    for (const auto& entry : value.entries()) items.push_back(quoted(entry.key) + ": " + literal(entry.value));
    return "{" + comma_separated(items) + "}";
  }
  if (value.is_null()) return "None";
  switch (value.scalar_type()) {
    case ScalarType::kNull:
      return "None";
    case ScalarType::kBool:
      return value.text()[0] == 't' || value.text()[0] == 'T' ? "True" : "False";
    case ScalarType::kInteger:
    case ScalarType::kFloat: {
      const bool is_written_alike = value.text().find_first_not_of("0123456789.eE+-") == std::string::npos;
      return is_written_alike ? value.text() : literal(nlohmann::json(parse_number(value.text()).value_or(NAN)));
    }
    case ScalarType::kString:
      return quoted(value.text());
  }
  return quoted(value.text());
}

std::string one_line(const Expression& expression) {
  if (!expression.is_call) return expression.text;
  std::vector<std::string> items;
  for (const auto& argument : expression.arguments) items.push_back(named(argument, one_line(argument.value)));
  return expression.text + "(" + comma_separated(items) + ")";
}

std::string written(const std::string& before, const Expression& expression, size_t indentation,
                    const std::string& after) {
  const std::string margin(indentation, ' ');
  const std::string line = margin + before + one_line(expression) + after;
  if (line.size() <= kMaxWidth || !expression.is_call || expression.arguments.empty()) return line + "\n";
  std::string text = margin + before + expression.text + "(\n";
  for (const auto& argument : expression.arguments) {
    text += written(named(argument, ""), argument.value, indentation + kIndent, ",");
  }
  return text + margin + ")" + after + "\n";
}

bool is_identifier(const std::string& text) {
  if (text.empty() || std::isdigit(static_cast<unsigned char>(text[0])) != 0) return false;
  const bool is_word = std::all_of(text.begin(), text.end(),
                                   [](char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; });
  return is_word && std::find(kKeywords.begin(), kKeywords.end(), text) == kKeywords.end();
}

std::string camel(const std::string& text) {
  std::string result;
  bool begins = true;
  for (const char c : text) {
    const bool is_letter = std::isalnum(static_cast<unsigned char>(c)) != 0;
    if (is_letter) result += begins ? static_cast<char>(std::toupper(static_cast<unsigned char>(c))) : c;
    begins = !is_letter;
  }
  if (result.empty() || std::isdigit(static_cast<unsigned char>(result[0])) != 0) return "Block" + result;
  return result;
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  for (size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size())) {
    text.replace(at, from.size(), to);
  }
  return text;
}

std::string indented(const std::string& lines, size_t spaces) {
  std::string text;
  size_t begin = 0;
  while (begin < lines.size()) {
    const size_t end = std::min(lines.find('\n', begin), lines.size());
    if (end > begin) text += std::string(spaces, ' ');
    text += lines.substr(begin, end - begin) + "\n";
    begin = end + 1;
  }
  return text;
}

}  // namespace trainrun::python
