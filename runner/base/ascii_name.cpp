#include "runner/base/ascii_name.h"

#include <cctype>

#include "registry/formats/text/unicode.h"

namespace trainrun {

std::string ascii_name(std::string_view text, std::string_view also, char other) {
  constexpr char32_t kAsciiEnd = 0x80;
  const std::string letters = unicode::normalized(unicode::valid(text), unicode::Form::kNfd);  // accents come apart
  std::string name;
  for (size_t at = 0; at < letters.size();) {
    const char32_t character = unicode::next(letters, at);
    if (unicode::is_nonspacing_mark(character)) continue;
    const bool stays = character < kAsciiEnd && (std::isalnum(static_cast<int>(character)) != 0 ||
                                                 also.find(static_cast<char>(character)) != std::string_view::npos);
    name += stays ? static_cast<char>(character) : other;
  }
  return name;
}

}  // namespace trainrun
