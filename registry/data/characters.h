#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace trainrun {

/// What recipes say in place of a tokenizer where characters are the tokens; no tokenizer's path or name.
constexpr const char* kCharacters = "characters";

/// The characters (code points) of a text in UTF-8. Throws DataError, which names `origin` and the byte, where it is
/// not UTF-8.
std::vector<uint32_t> code_points(std::string_view text, const std::string& origin);

/// The characters of a text, each with a number: sorted, as nanoGPT's shakespeare_char has them.
class Alphabet {
 public:
  Alphabet() = default;
  explicit Alphabet(std::vector<uint32_t> characters);

  /// Throws DataError, which names `origin` and the character, where one is not of the alphabet.
  std::vector<uint32_t> encode(const std::vector<uint32_t>& characters, const std::string& origin) const;
  /// All characters in their order, as one text in UTF-8.
  std::string text() const;
  bool empty() const { return characters_.empty(); }

 private:
  std::vector<uint32_t> characters_;
  std::unordered_map<uint32_t, uint32_t> numbers_;
};

}  // namespace trainrun
