#include "registry/language/utf8.h"

#include <algorithm>
#include <cstring>

namespace trainrun {
size_t utf8_length(std::string_view bytes, size_t at, size_t& part) {
  const auto byte = [&](size_t i) { return at + i < bytes.size() ? static_cast<unsigned char>(bytes[at + i]) : 0U; };
  const unsigned first = byte(0);
  part = 1;
  if (first < 0x80) return 1;
  const size_t size = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : 2;
  if (first < 0xC2 || first > 0xF4) return 0;
  unsigned least = 0x80, most = 0xBF;
  if (first == 0xE0) least = 0xA0;
  if (first == 0xED) most = 0x9F;
  if (first == 0xF0) least = 0x90;
  if (first == 0xF4) most = 0x8F;
  for (size_t i = 1; i < size; ++i) {
    if (byte(i) < least || byte(i) > most) return 0;
    least = 0x80, most = 0xBF;
    ++part;
  }
  return size;
}

size_t utf8_size(char first) {
  const auto byte = static_cast<unsigned char>(first);
  return byte < 0x80 ? 1 : byte < 0xE0 ? 2 : byte < 0xF0 ? 3 : 4;
}

uint32_t next_code_point(std::string_view text, size_t& offset) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[offset + i]); };
  if (byte(0) < 0x80) return static_cast<unsigned char>(text[offset++]);
  size_t part = 0;
  const size_t length = utf8_length(text, offset, part);
  if (length == 0) return kInvalidCodePoint;
  uint32_t code_point = byte(0) & (0xFF >> (length + 1));
  for (size_t i = 1; i < length; ++i) code_point = code_point << 6 | (byte(i) & 0x3F);
  offset += length;
  return code_point;
}

void append_utf8(std::string& text, uint32_t code_point) {
  const auto byte = [&](uint32_t bits) { text += static_cast<char>(bits); };
  const auto later = [&](uint32_t shift) { byte(0x80U | ((code_point >> shift) & 0x3FU)); };
  if (code_point < 0x80) return byte(code_point);
  if (code_point < 0x800) {
    byte(0xC0U | (code_point >> 6U));
  } else {
    if (code_point < 0x10000) {
      byte(0xE0U | (code_point >> 12U));
    } else {
      byte(0xF0U | (code_point >> 18U));
      later(12);
    }
    later(6);
  }
  later(0);
}

std::string utf8_of(uint32_t code_point) {
  std::string text;
  append_utf8(text, code_point);
  return text;
}

size_t valid_utf8_length(std::string_view text) {
  constexpr uint64_t kHighBits = 0x8080808080808080;
  size_t offset = 0;
  while (offset < text.size()) {
    uint64_t word = 0;
    if (text.size() - offset >= sizeof(word)) {  // most text is ASCII
      std::memcpy(&word, text.data() + offset, sizeof(word));
      if ((word & kHighBits) == 0) {
        offset += sizeof(word);
        continue;
      }
    }
    size_t part = 0;
    const size_t length = utf8_length(text, offset, part);
    if (length == 0) break;
    offset += length;
  }
  return offset;
}

size_t count_code_points(std::string_view text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), begins_character));
}

bool is_printable(uint32_t code_point) {
  if (code_point < 0x20) return code_point == '\t' || code_point == '\n';
  if (code_point >= 0x7F && code_point < 0xA0) return false;
  if (code_point == 0x2028 || code_point == 0x2029 || code_point == 0xFEFF) return false;
  return (code_point & 0xFFFE) != 0xFFFE;
}

}  // namespace trainrun
