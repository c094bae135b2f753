#include "registry/formats/text/normalizer.h"
#include "registry/formats/text/unicode.h"

namespace trainrun {
namespace {

/// The blocks of Chinese characters, as Hugging Face's tokenizers have them; the fifth lacks 256 of Unicode's.
bool is_chinese(char32_t c) {
  return (c >= 0x4E00 && c <= 0x9FFF) || (c >= 0x3400 && c <= 0x4DBF) || (c >= 0x20000 && c <= 0x2A6DF) ||
         (c >= 0x2A700 && c <= 0x2B73F) || (c >= 0x2B740 && c <= 0x2B81F) || (c >= 0x2B920 && c <= 0x2CEAF) ||
         (c >= 0xF900 && c <= 0xFAFF) || (c >= 0x2F800 && c <= 0x2FA1F);
}

bool is_unclean(char32_t c) {
  const bool space = c == '\t' || c == '\n' || c == '\r';
  return c == 0 || c == unicode::kReplacement || (!space && unicode::is_other(c));
}

void clean_ascii(const BertNormalizer& options, NormalizedText& text) {
  size_t kept = 0;
  for (const char c : text.text) {
    const auto character = static_cast<char32_t>(c);
    if (options.clean_text && is_unclean(character)) {
      if (kept == 0) text.front_removed = true;
      continue;
    }
    char written = c;
    if (options.clean_text && unicode::is_whitespace(character)) written = ' ';
    if (options.lowercase && c >= 'A' && c <= 'Z') written = static_cast<char>(c + ('a' - 'A'));
    text.text[kept++] = written;
  }
  text.text.resize(kept);
}

}  // namespace

void BertNormalizer::apply(NormalizedText& text) const {
  if (unicode::is_ascii(text.text)) return clean_ascii(*this, text);
  std::string cleaned;
  for (size_t at = 0; at < text.text.size();) {
    const char32_t c = unicode::next(text.text, at);
    if (clean_text && is_unclean(c)) {
      if (cleaned.empty()) text.front_removed = true;
      continue;
    }
    const bool spaced = handle_chinese_chars && is_chinese(c);
    if (spaced) cleaned += ' ';
    unicode::append(cleaned, clean_text && unicode::is_whitespace(c) ? U' ' : c);
    if (spaced) cleaned += ' ';
  }
  if (strip_accents) {
    const std::string decomposed = unicode::normalized(cleaned, unicode::Form::kNfd);
    cleaned.clear();
    for (size_t at = 0; at < decomposed.size();) {
      const char32_t c = unicode::next(decomposed, at);
      if (!unicode::is_nonspacing_mark(c)) {
        unicode::append(cleaned, c);
      } else if (cleaned.empty()) {
        text.front_removed = true;
      }
    }
  }
  text.text = lowercase ? unicode::lower(cleaned) : cleaned;
}

}  // namespace trainrun
