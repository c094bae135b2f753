#include <cstring>
#include <optional>
#include <vector>

#include "registry/formats/text/normalizer.h"
#include "registry/formats/text/unicode.h"
#include "registry/language/error.h"
#include "registry/language/utf8.h"

namespace trainrun {
namespace {

/// A double array, as Darts-clone lays it out, over the texts to be replaced; its values are places in the replacements.
/// Source: SentencePiece's normalizer.cc; the order of look-ups is that of Hugging Face's spm_precompiled.
class CharsmapNormalizer final : public Normalizer {
 public:
  explicit CharsmapNormalizer(const std::string& table) {
    uint32_t bytes = 0;
    if (table.size() >= sizeof bytes) std::memcpy(&bytes, table.data(), sizeof bytes);
    if (bytes == 0 || bytes % sizeof(uint32_t) != 0 || bytes > table.size() - sizeof bytes) {
      throw DataError("the table of replaced characters is cut off or damaged");
    }
    units_.resize(bytes / sizeof(uint32_t));
    std::memcpy(units_.data(), table.data() + sizeof bytes, bytes);
    replacements_ = table.substr(sizeof bytes + bytes);
    if (!unicode::is_valid(replacements_)) throw DataError("the table of replaced characters is not UTF-8");
  }

  void apply(NormalizedText& text) const override {
    constexpr size_t kLongestCluster = 6;
    std::string result;
    for (size_t begin = 0; begin < text.text.size();) {
      const size_t end = unicode::grapheme_end(text.text, begin);
      const std::string_view cluster(text.text.data() + begin, end - begin);
      begin = end;
      if (cluster.size() < kLongestCluster) {
        if (const auto found = find(cluster)) {
          result += *found;
          continue;
        }
      }
      for (size_t at = 0; at < cluster.size();) {
        const std::string_view character = cluster.substr(at, unicode::length(cluster[at]));
        at += character.size();
        result += find(character).value_or(character);
      }
    }
    text.text = std::move(result);
  }

 private:
  /// What takes the place of the shortest beginning of `part` that the table knows.
  std::optional<std::string_view> find(std::string_view part) const {
    constexpr uint32_t kLeafBit = 8, kLabel = (1U << 31) | 0xFF;
    const auto offset = [](uint32_t unit) { return size_t{unit >> 10} << ((unit & (1U << 9)) >> 6); };
    size_t node = offset(units_[0]);
    for (const char c : part) {
      const auto byte = static_cast<unsigned char>(c);
      node ^= byte;
      if (byte == 0 || node >= units_.size()) return std::nullopt;
      const uint32_t unit = units_[node];
      if ((unit & kLabel) != byte) return std::nullopt;
      node ^= offset(unit);
      if ((unit >> kLeafBit & 1) == 0) continue;
      if (node >= units_.size()) return std::nullopt;
      return replacement(units_[node] & ~(1U << 31));
    }
    return std::nullopt;
  }

  std::optional<std::string_view> replacement(size_t at) const {
    // A place within a character can only come from a damaged table.
    if (at >= replacements_.size() || !begins_character(replacements_[at])) {
      return std::nullopt;
    }
    return std::string_view(replacements_.c_str() + at);  // up to the next zero byte
  }

  std::vector<uint32_t> units_;
  std::string replacements_;
};

}  // namespace

std::unique_ptr<Normalizer> charsmap_normalizer(const std::string& table) {
  return std::make_unique<CharsmapNormalizer>(table);
}

}  // namespace trainrun
