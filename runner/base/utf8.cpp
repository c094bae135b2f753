#include "runner/base/utf8.h"

#include <algorithm>

namespace trainrun {
namespace {

bool is_continuation(unsigned char byte) { return (byte & 0xC0) == 0x80; }

}  // namespace

uint32_t next_code_point(std::string_view text, size_t& offset) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[offset + i]); };
  if (byte(0) < 0x80) return static_cast<unsigned char>(text[offset++]);
  const size_t length = byte(0) >= 0xF0 ? 4 : byte(0) >= 0xE0 ? 3 : 2;
  if (byte(0) < 0xC2 || byte(0) > 0xF4 || text.size() - offset < length) return kInvalidCodePoint;
  uint32_t code_point = byte(0) & (0xFF >> (length + 1));
  for (size_t i = 1; i < length; ++i) {
    if (!is_continuation(byte(i))) return kInvalidCodePoint;
    code_point = code_point << 6 | (byte(i) & 0x3F);
  }
  constexpr uint32_t kSmallest[] = {0, 0, 0x80, 0x800, 0x10000};
  const bool surrogate = code_point >= 0xD800 && code_point <= 0xDFFF;
  if (code_point < kSmallest[length] || surrogate || code_point > 0x10FFFF) return kInvalidCodePoint;
  offset += length;
  return code_point;
}

size_t valid_utf8_length(std::string_view text) {
  size_t offset = 0;
  while (offset < text.size()) {
    if (next_code_point(text, offset) == kInvalidCodePoint) break;
  }
  return offset;
}

size_t count_code_points(std::string_view text) {
  return static_cast<size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return !is_continuation(static_cast<unsigned char>(c)); }));
}

bool is_printable(uint32_t code_point) {
  if (code_point < 0x20) return code_point == '\t' || code_point == '\n';
  if (code_point >= 0x7F && code_point < 0xA0) return false;
  if (code_point == 0x2028 || code_point == 0x2029 || code_point == 0xFEFF) return false;
  return (code_point & 0xFFFE) != 0xFFFE;
}

}  // namespace trainrun
