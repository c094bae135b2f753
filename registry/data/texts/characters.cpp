#include "registry/data/texts/characters.h"

#include <algorithm>

#include "registry/language/error.h"
#include "registry/language/hex.h"
#include "registry/language/utf8.h"

namespace trainrun {

std::vector<uint32_t> code_points(std::string_view text, const std::string& origin) {
  std::vector<uint32_t> points;
  points.reserve(text.size());
  for (size_t i = 0; i < text.size();) {
    points.push_back(next_code_point(text, i));
    if (points.back() != kInvalidCodePoint) continue;
    throw DataError(origin + ": byte " + std::to_string(i + 1) + " is not UTF-8; convert the text first");
  }
  return points;
}

std::string utf8_of(uint32_t code_point) {
  const auto byte = [](uint32_t bits) { return static_cast<char>(bits); };
  const auto later = [&](uint32_t shift) { return byte(0x80U | ((code_point >> shift) & 0x3FU)); };
  if (code_point < 0x80) return {byte(code_point)};
  if (code_point < 0x800) return {byte(0xC0U | (code_point >> 6U)), later(0)};
  if (code_point < 0x10000) return {byte(0xE0U | (code_point >> 12U)), later(6), later(0)};
  return {byte(0xF0U | (code_point >> 18U)), later(12), later(6), later(0)};
}

Alphabet::Alphabet(std::vector<uint32_t> characters) : characters_(std::move(characters)) {
  std::sort(characters_.begin(), characters_.end());
  characters_.erase(std::unique(characters_.begin(), characters_.end()), characters_.end());
  for (const uint32_t character : characters_) numbers_.emplace(character, static_cast<uint32_t>(numbers_.size()));
}

std::vector<uint32_t> Alphabet::encode(const std::vector<uint32_t>& characters, const std::string& origin) const {
  std::vector<uint32_t> numbers;
  numbers.reserve(characters.size());
  for (const uint32_t character : characters) {
    const auto found = numbers_.find(character);
    if (found == numbers_.end()) {
      throw DataError(origin + ": the character '" + utf8_of(character) + "' (U+" +
                      hex_number(character, 4, HexCase::kUpper) +
                      ") does not occur in the training text, so the model has no number for it");
    }
    numbers.push_back(found->second);
  }
  return numbers;
}

std::string Alphabet::text() const {
  std::string text;
  for (const uint32_t character : characters_) text += utf8_of(character);
  return text;
}

}  // namespace trainrun
