#include "registry/formats/text/gpt2_words.h"

#include <algorithm>
#include <array>

#include "registry/formats/text/unicode.h"
#include "registry/language/regex.h"

namespace trainrun {
namespace {

constexpr const char* kGpt2Pattern = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

enum class Ascii { kSpace, kLetter, kDigit, kOther };

Ascii ascii_kind(char c) {
  if (unicode::is_whitespace(static_cast<char32_t>(c))) return Ascii::kSpace;
  if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z')) return Ascii::kLetter;
  return c >= '0' && c <= '9' ? Ascii::kDigit : Ascii::kOther;
}

enum class Case { kExact, kAny };

/// The end of the ending (as in "it's") that begins at `at`, or `at`.
size_t ending_end(std::string_view text, size_t at, Case letter_case) {
  static constexpr std::array<std::string_view, 7> kEndings = {"'s", "'t", "'re", "'ve", "'m", "'ll", "'d"};
  if (text[at] != '\'') return at;
  const auto same = [&](char c, char expected) {
    return c == expected || (letter_case == Case::kAny && c >= 'A' && c <= 'Z' && c + ('a' - 'A') == expected);
  };
  for (const std::string_view ending : kEndings) {
    const std::string_view part = text.substr(at, ending.size());
    if (std::equal(part.begin(), part.end(), ending.begin(), ending.end(), same)) return at + ending.size();
  }
  return at;
}

size_t run_end(std::string_view text, size_t at) {
  const Ascii kind = ascii_kind(text[at]);
  while (at < text.size() && ascii_kind(text[at]) == kind) ++at;
  return at;
}

/// Of several spaces before a word, the last one is the word's, or stands alone.
size_t spaces_end(std::string_view text, size_t at) {
  const size_t end = run_end(text, at);
  return end < text.size() && end - at > 1 ? end - 1 : end;
}

/// The end of the word that begins at `at`.
size_t gpt2_word_end(std::string_view text, size_t at) {
  if (const size_t end = ending_end(text, at, Case::kExact); end > at) return end;
  const bool blank = text[at] == ' ' && at + 1 < text.size() && ascii_kind(text[at + 1]) != Ascii::kSpace;
  const size_t first = blank ? at + 1 : at;
  return ascii_kind(text[first]) == Ascii::kSpace ? spaces_end(text, at) : run_end(text, first);
}

bool is_newline(char c) { return c == '\r' || c == '\n'; }

size_t chat_word_end(std::string_view text, size_t at, size_t digits) {
  if (const size_t end = ending_end(text, at, Case::kAny); end > at) return end;
  const Ascii kind = ascii_kind(text[at]);
  const Ascii next = at + 1 < text.size() ? ascii_kind(text[at + 1]) : Ascii::kSpace;
  if (kind == Ascii::kLetter) return run_end(text, at);
  if (kind == Ascii::kDigit) return std::min(run_end(text, at), at + digits);
  if (next == Ascii::kLetter && !is_newline(text[at])) return run_end(text, at + 1);
  if (kind == Ascii::kOther || (text[at] == ' ' && next == Ascii::kOther)) {
    size_t end = run_end(text, kind == Ascii::kOther ? at : at + 1);
    while (end < text.size() && is_newline(text[end])) ++end;
    return end;
  }
  for (size_t end = run_end(text, at); end > at; --end) {
    if (is_newline(text[end - 1])) return end;
  }
  return spaces_end(text, at);
}

}  // namespace

void find_gpt2_words(std::string_view text, std::vector<SplitSpan>& spans) {
  if (unicode::is_ascii(text)) {  // the same as the pattern's matches, found in a fraction of the time
    for (size_t at = 0; at < text.size();) {
      const size_t end = gpt2_word_end(text, at);
      spans.push_back({at, end, true});
      at = end;
    }
    return;
  }
  static const Regex pattern(kGpt2Pattern);
  pattern.each(text, [&](size_t begin, size_t end) { spans.push_back({begin, end, true}); });
}

std::optional<size_t> digits_of_chat_pattern(std::string_view pattern) {
  constexpr std::string_view kBefore = R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N})";
  constexpr std::string_view kAfter = R"(| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
  if (!pattern.starts_with(kBefore) || !pattern.ends_with(kAfter)) return std::nullopt;
  if (pattern.size() < kBefore.size() + kAfter.size()) return std::nullopt;
  const std::string_view count = pattern.substr(kBefore.size(), pattern.size() - kBefore.size() - kAfter.size());
  if (count.empty()) return 1;
  return count == "{1,3}" ? std::optional<size_t>(3) : std::nullopt;
}

void find_ascii_chat_words(std::string_view text, size_t digits, std::vector<SplitSpan>& spans) {
  for (size_t at = 0; at < text.size();) {
    const size_t end = chat_word_end(text, at, digits);
    spans.push_back({at, end, true});
    at = end;
  }
}

}  // namespace trainrun
