#pragma once

#include <algorithm>
#include <string_view>

namespace trainrun {

/// One of 0 to 9.
inline bool is_digit(char c) { return c >= '0' && c <= '9'; }

/// Without the spaces and tabulators around it.
inline std::string_view trimmed(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
  return text;
}

/// Without the ends of lines around it, too.
inline std::string_view without_space(std::string_view text) {
  constexpr std::string_view kSpace = " \t\r\n";
  text.remove_prefix(std::min(text.find_first_not_of(kSpace), text.size()));
  return text.substr(0, text.find_last_not_of(kSpace) + 1);
}

}  // namespace trainrun
