#pragma once

#include <charconv>
#include <limits>
#include <optional>
#include <string_view>
#include <system_error>

namespace trainrun {

/// The number that the whole text is: digits with a minus sign, and what else std::from_chars takes of a `Number`;
/// nothing for any other text, and where it is beyond `Number`. Recipes have rules of their own: see parse_number.
template <class Number>
std::optional<Number> number_of(std::string_view text) {
  Number number{};
  const char* const begin = text.data();
  const char* const end = begin + text.size();
  const auto [stop, error] = std::from_chars(begin, end, number);
  if (text.empty() || error != std::errc() || stop != end) return std::nullopt;
  return number;
}

/// The same of a file's text, which may have a plus sign; infinity where it is beyond a double, or too small for one.
inline std::optional<double> data_number_of(std::string_view text) {
  if (text.size() > 1 && text[0] == '+' && text[1] != '-') text.remove_prefix(1);
  double number = 0;
  const char* const begin = text.data();
  const char* const end = begin + text.size();
  const auto [stop, error] = std::from_chars(begin, end, number);
  if (text.empty() || error == std::errc::invalid_argument || stop != end) return std::nullopt;
  return error == std::errc::result_out_of_range ? std::numeric_limits<double>::infinity() : number;
}

}  // namespace trainrun
