#include "registry/data/characters.h"

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
