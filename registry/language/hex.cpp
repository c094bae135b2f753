#include "registry/language/hex.h"

#include <algorithm>
#include <charconv>

namespace trainrun {

std::string hex_of(std::string_view bytes) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text;
  text.reserve(2 * bytes.size());
  for (const char c : bytes) {
    const auto byte = static_cast<unsigned char>(c);
    text += kDigits[byte >> 4];
    text += kDigits[byte & 15];
  }
  return text;
}

std::optional<std::string> bytes_of_hex(std::string_view text) {
  if (text.size() % 2 != 0) return std::nullopt;
  std::string bytes;
  bytes.reserve(text.size() / 2);
  for (size_t i = 0; i < text.size(); i += 2) {
    const std::string_view digits = text.substr(i, 2);
    const auto byte = number_of_hex(digits);
    const bool is_lower = std::none_of(digits.begin(), digits.end(), [](char c) { return c >= 'A' && c <= 'F'; });
    if (!byte || !is_lower) return std::nullopt;
    bytes += static_cast<char>(*byte);
  }
  return bytes;
}

std::string hex_number(uint64_t number, int width, HexCase letters) {
  const std::string_view digits = letters == HexCase::kLower ? "0123456789abcdef" : "0123456789ABCDEF";
  std::string text;
  for (; number > 0 || width > 0; number >>= 4, --width) text += digits[number & 15];
  std::reverse(text.begin(), text.end());
  return text;
}

std::optional<uint64_t> number_of_hex(std::string_view digits) {
  constexpr int kBase = 16;
  uint64_t number = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number, kBase);
  if (digits.empty() || error != std::errc() || end != digits.data() + digits.size()) return std::nullopt;
  return number;
}

}  // namespace trainrun
