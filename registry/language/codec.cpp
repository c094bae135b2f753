#include "registry/language/codec.h"

#include <charconv>
#include <cmath>

namespace trainrun {

std::optional<bool> Codec<bool>::read(const Value& value, Reader& reader) {
  if (value.is_scalar() && value.scalar_type() == ScalarType::kBool)
    return value.text()[0] == 't' || value.text()[0] == 'T';
  std::string hint;
  if (value.is_scalar()) {
    const std::string& text = value.text();
    if (text == "yes" || text == "on" || text == "1" || text == "True") hint = "; write true";
    if (text == "no" || text == "off" || text == "0" || text == "False") hint = "; write false";
    if (text == "true" || text == "false") hint = "; write it without quotes";
  }
  reader.error(value.place(), "expected true or false, found " + value.describe() + hint);
  return std::nullopt;
}

namespace {

/// "; write 0.001" of '0,001'.
std::string comma_hint(std::string text) {
  const size_t comma = text.find(',');
  if (comma == std::string::npos || text.find(',', comma + 1) != std::string::npos) return "";
  text[comma] = '.';
  return parse_number(text) ? "; a number has a point, not a comma: write " + text : "";
}

/// What to do about a text that is nearly a number: '010', 0x1F, 1_000, 1e400, '0.1', '0,1'.
std::string number_hint(const Value& value) {
  if (!value.is_scalar()) return "";
  std::string text = value.text();
  if (value.quoted() && parse_number(text)) return "; write it without quotes";
  if (const std::string hint = comma_hint(text); !hint.empty()) return hint;
  if (value.quoted()) return "";
  const bool number = value.scalar_type() == ScalarType::kInteger || value.scalar_type() == ScalarType::kFloat;
  if (number && !parse_number(text)) return "; it is too large";
  if (value.scalar_type() == ScalarType::kInteger && !parse_integer(text)) return "; it is too large";
  const size_t sign = text.find_first_of("+-") == 0 ? 1 : 0;
  const size_t digit = text.find_first_not_of('0', sign);
  const bool leading_zero = digit != std::string::npos && digit > sign && text[digit] >= '1' && text[digit] <= '9';
  if (leading_zero && parse_number(text.substr(0, sign) + text.substr(digit))) {
    return "; write it without the leading zero";
  }
  if (text.find('_') != std::string::npos) {
    std::erase(text, '_');
    if (parse_number(text)) return "; write " + text;
  }
  if (text.starts_with("0x") || text.starts_with("0o") || text.starts_with("0b")) return "; write it in decimal";
  return "";
}

}  // namespace

std::optional<int64_t> Codec<int64_t>::read(const Value& value, Reader& reader) {
  if (value.is_scalar() && !value.quoted()) {
    if (const auto integer = parse_integer(value.text())) return integer;
  }
  reader.error(value.place(), "expected an integer, found " + value.describe() + number_hint(value));
  return std::nullopt;
}

std::optional<double> Codec<double>::read(const Value& value, Reader& reader) {
  if (value.is_scalar() && !value.quoted()) {
    if (const auto number = parse_number(value.text())) return number;
  }
  reader.error(value.place(), "expected a number, found " + value.describe() + number_hint(value));
  return std::nullopt;
}

std::optional<std::string> Codec<std::string>::read(const Value& value, Reader& reader) {
  if (value.is_scalar() && value.scalar_type() == ScalarType::kString) return value.text();
  const bool plain = value.is_scalar() && value.scalar_type() != ScalarType::kNull;
  reader.error(value.place(), "expected a string, found " + value.describe() +
                                  (plain ? "; put it in quotes if it is meant as text" : ""));
  return std::nullopt;
}

namespace detail {

std::string plural(const std::string& name) {
  if (name.starts_with('{')) return name;
  return name.find(' ') == std::string::npos ? name + "s" : "(" + name + ")";
}

namespace {

/// A scalar as it may stand within brackets.
std::string within_brackets(const Value& value) {
  const std::string& text = value.text();
  if (!value.quoted() && text.find_first_of(",[]{}#'\"") == std::string::npos) return text;
  std::string quoted = "'";
  for (const char c : text) quoted += c == '\'' ? std::string("''") : std::string(1, c);
  return quoted + "'";
}

}  // namespace

std::string list_hint(const Value& value, const std::string& item) {
  constexpr size_t kLong = 40;
  const bool scalar = value.is_scalar() && value.scalar_type() != ScalarType::kNull && value.text().size() <= kLong;
  return scalar && !item.starts_with('{') ? "; write [" + within_brackets(value) + "]" : "";
}

std::string number_text(double number) {
  constexpr double kMostDigits = 1e15;  // of whole numbers that are written out: 1000000000, not 1e+09
  const bool whole = std::abs(number) < kMostDigits && number == std::trunc(number);
  char buffer[32];
  const auto result = whole ? std::to_chars(buffer, buffer + sizeof buffer, number, std::chars_format::fixed)
                            : std::to_chars(buffer, buffer + sizeof buffer, number);
  return {buffer, result.ptr};
}

}  // namespace detail
}  // namespace trainrun
