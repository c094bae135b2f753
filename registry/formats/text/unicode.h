#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace trainrun::unicode {

constexpr char32_t kReplacement = 0xFFFD;

/// The bytes as valid UTF-8: each longest ill-formed part becomes U+FFFD, as Python's errors="replace" has it.
std::string valid(std::string_view bytes);
bool is_valid(std::string_view bytes);
/// Whether every byte is below 128.
bool is_ascii(std::string_view text);

/// The character at `at`, which moves behind it. The text must be valid UTF-8, and `at` at the start of a character.
char32_t next(std::string_view text, size_t& at);
/// How many bytes the character that begins with this byte takes.
size_t length(char first);
/// The start of the character that ends at `end` (above 0).
size_t start_of_last(std::string_view text, size_t end);
size_t count(std::string_view text);
void append(std::string& text, char32_t character);
std::string encoded(char32_t character);

/// The property White_Space.
bool is_whitespace(char32_t character);
/// The general category P, and the signs of ASCII that are symbols (`$`, `+`, `<`, …).
bool is_punctuation(char32_t character);
/// The general category N.
bool is_numeric(char32_t character);
/// The general categories Cc, Cf and Co.
bool is_other(char32_t character);
/// The general category Mn, which has accents.
bool is_nonspacing_mark(char32_t character);
/// The general category M.
bool is_mark(char32_t character);
/// Letters, marks, decimal digits, connecting punctuation and joiners: what `\w` means in Unicode's TR 18.
bool is_word(char32_t character);

/// In lower case, each character for itself.
std::string lower(std::string_view text);

enum class Form { kNfc, kNfd, kNfkc, kNfkd };
std::string normalized(std::string_view text, Form form);

/// The end of the extended grapheme cluster that begins at `begin`.
size_t grapheme_end(std::string_view text, size_t begin);

}  // namespace trainrun::unicode
