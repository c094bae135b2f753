#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace trainrun {

/// How many bytes at `at` are one well-formed character of UTF-8; 0: they are none (overlong forms, surrogates and code
/// points above U+10FFFF included), and `part` of them are ill-formed together (Unicode, 3.9, "substitution of maximal
/// subparts").
size_t utf8_length(std::string_view bytes, size_t at, size_t& part);

/// Whether a byte of valid UTF-8 begins a character, and is not a later part of one.
inline bool begins_character(char byte) { return (static_cast<unsigned char>(byte) & 0xC0) != 0x80; }

/// How many bytes the character of valid UTF-8 that begins with this byte takes.
size_t utf8_size(char first);

/// The code point that starts at `text[offset]`; moves `offset` behind it. Returns kInvalidCodePoint and leaves
/// `offset` where the bytes are not well-formed UTF-8.
uint32_t next_code_point(std::string_view text, size_t& offset);
constexpr uint32_t kInvalidCodePoint = 0xFFFFFFFF;

/// Appends the character's UTF-8. `code_point` is at most U+10FFFF and no surrogate.
void append_utf8(std::string& text, uint32_t code_point);
std::string utf8_of(uint32_t code_point);

/// How many bytes from the start are well-formed UTF-8: `text.size()` if all are.
size_t valid_utf8_length(std::string_view text);

/// The number of code points of well-formed text.
size_t count_code_points(std::string_view text);

/// False for what YAML wants escaped: controls other than tab and line feed, byte order marks, U+2028, U+2029,
/// non-characters.
bool is_printable(uint32_t code_point);

}  // namespace trainrun
