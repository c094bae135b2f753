#pragma once

#include <cstdint>
#include <string_view>

namespace trainrun {

/// The code point that starts at `text[offset]`; moves `offset` behind it. Returns kInvalidCodePoint and leaves
/// `offset` where the bytes are no well-formed UTF-8 (overlong forms, surrogates and code points above U+10FFFF
/// included).
uint32_t next_code_point(std::string_view text, size_t& offset);
constexpr uint32_t kInvalidCodePoint = 0xFFFFFFFF;

/// How many bytes from the start are well-formed UTF-8: `text.size()` if all are.
size_t valid_utf8_length(std::string_view text);

/// The number of code points of well-formed text.
size_t count_code_points(std::string_view text);

/// False for what YAML wants escaped: controls other than tab and line feed, byte order marks, U+2028, U+2029,
/// non-characters.
bool is_printable(uint32_t code_point);

}  // namespace trainrun
