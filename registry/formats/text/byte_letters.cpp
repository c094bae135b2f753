#include "registry/formats/text/byte_letters.h"

#include <array>

#include "registry/formats/text/unicode.h"

namespace trainrun {
namespace {

constexpr size_t kBytes = 256;
constexpr size_t kLetters = kBytes + 68;  // the highest letter is 0x143

struct ByteTable {
  std::array<std::string, kBytes> letters;
  std::array<int16_t, kLetters> bytes{};

  ByteTable() {
    bytes.fill(-1);
    char32_t next_free = kBytes;
    for (size_t byte = 0; byte < kBytes; ++byte) {
      const bool printable = (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
      const char32_t letter = printable ? static_cast<char32_t>(byte) : next_free++;
      letters[byte] = unicode::encoded(letter);
      bytes[letter] = static_cast<int16_t>(byte);
    }
  }
};

const ByteTable& byte_table() {
  static const ByteTable table;
  return table;
}

}  // namespace

void append_byte_letters(std::string& letters, std::string_view bytes) {
  const ByteTable& table = byte_table();
  for (const char byte : bytes) letters += table.letters[static_cast<unsigned char>(byte)];
}

std::string byte_letters(std::string_view bytes) {
  std::string letters;
  letters.reserve(bytes.size() * 2);
  append_byte_letters(letters, bytes);
  return letters;
}

bool append_bytes_of(std::string& bytes, std::string_view letters) {
  const ByteTable& table = byte_table();
  const size_t before = bytes.size();
  for (size_t at = 0; at < letters.size();) {
    const char32_t letter = unicode::next(letters, at);
    if (letter >= kLetters || table.bytes[letter] < 0) {
      bytes.resize(before);
      return false;
    }
    bytes += static_cast<char>(table.bytes[letter]);
  }
  return true;
}

}  // namespace trainrun
