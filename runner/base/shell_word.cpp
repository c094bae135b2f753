#include "runner/base/shell_word.h"

#include <algorithm>
#include <cctype>
#include <string_view>

#include "registry/language/hex.h"

namespace trainrun {

std::string shell_word(const std::string& text) {
  const auto is_plain = [](unsigned char c) {
    return (c < 128 && std::isalnum(c)) ||
           std::string_view("_./:=,@%+-").find(static_cast<char>(c)) != std::string::npos;
  };
  if (!text.empty() && std::all_of(text.begin(), text.end(), is_plain)) return text;
  const bool has_controls = std::any_of(text.begin(), text.end(), [](unsigned char c) { return c < 32 || c == 127; });
  std::string word = has_controls ? "$'" : "'";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (has_controls && (byte < 32 || byte == 127)) {
      word += "\\x" + hex_number(byte, 2);
    } else if (has_controls && (c == '\'' || c == '\\')) {
      word += std::string("\\") + c;
    } else {
      word += c == '\'' ? std::string("'\\''") : std::string(1, c);
    }
  }
  return word + "'";
}

}  // namespace trainrun
