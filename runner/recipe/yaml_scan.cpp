#include "runner/recipe/yaml_scan.h"

#include <map>
#include <vector>

#include "registry/language/hex.h"
#include "registry/language/utf8.h"

namespace trainrun {
namespace {

/// What looks like a space, or like nothing, and is a letter to YAML.
const char* name_of_false_blank(uint32_t code_point) {
  switch (code_point) {
    case 0x00A0:
      return "a non-breaking space";
    case 0x202F:
      return "a narrow non-breaking space";
    case 0x2007:
      return "a figure space";
    case 0x3000:
      return "an ideographic space";
    case 0x200B:
      return "a zero-width space";
    case 0xFEFF:
      return "a zero-width non-breaking space";
    default:
      return code_point >= 0x2000 && code_point <= 0x200A ? "a typographic space" : nullptr;
  }
}

/// Walks over a text, character by character, and knows what is quoted, a comment, or the text of a `|` or `>`.
class Scanner {
 public:
  explicit Scanner(const YamlText& source) : text_(source.text()) {}

  struct Bracket {
    size_t offset;
    size_t indentation;  // of the line it stands on
  };

  bool at_end() const { return offset_ >= text_.size(); }
  size_t offset() const { return offset_; }
  const std::vector<Bracket>& open() const { return open_; }

  /// Moves behind the next thing: a whole quoted text, comment or block text, or a single character. True for a
  /// character of plain text, which then stands at `plain`.
  bool next(size_t& plain) {
    if (at_line_start_) begin_line();
    if (at_end()) return false;
    const char c = text_[offset_];
    if (c == '\n') return end_line(), false;
    if ((c == '"' || c == '\'') && begins_token_) return skip_quoted(c), false;
    if (c == '#' && (offset_ == 0 || is_blank(text_[offset_ - 1]) || text_[offset_ - 1] == '\n')) {
      return skip_to(text_.find('\n', offset_)), false;
    }
    count_brackets(c);
    plain = offset_;
    if (!is_blank(c)) {
      last_ = c;
      begins_token_ = std::string_view("{[,").find(c) != std::string_view::npos && !open_.empty();
      if ((c == ':' || c == '-' || c == '?') && is_blank_at(offset_ + 1)) begins_token_ = true;
    }
    next_code_point(text_, offset_);
    return true;
  }

  /// Whether the line that begins here cannot be inside the open brackets: it is not indented more than the line on
  /// which the first opened, and begins with a key or a dash.
  bool line_ends_brackets() const {
    if (open_.empty() || !at_line_start_) return false;
    const size_t start = text_.find_first_not_of(' ', offset_);
    if (start == std::string::npos || text_[start] == '\n' || text_[start] == '#') return false;
    if (start - offset_ > open_[0].indentation) return false;
    if (text_.compare(start, 2, "- ") == 0) return true;
    const size_t end =
        text_.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.", start);
    return end != std::string::npos && end > start && text_[end] == ':' && is_blank_at(end + 1);
  }

  /// Whether `}` or `]` stands here and the innermost open bracket, of an earlier line, is of the other kind.
  bool closes_another() const {
    if (open_.empty() || at_end()) return false;
    const char c = text_[offset_];
    const char opening = text_[open_.back().offset];
    const bool other = (c == ']' && opening == '{') || (c == '}' && opening == '[');
    return other && open_.size() > 1 && text_.find('\n', open_.back().offset) < offset_;
  }

 private:
  static bool is_blank(char c) { return c == ' ' || c == '\t'; }
  bool is_blank_at(size_t i) const { return i >= text_.size() || is_blank(text_[i]) || text_[i] == '\n'; }
  void skip_to(size_t end) { offset_ = std::min(end, text_.size()); }

  void begin_line() {
    at_line_start_ = false;
    begins_token_ = true;
    const size_t start = text_.find_first_not_of(' ', offset_);
    indentation_ = (start == std::string::npos ? text_.size() : start) - offset_;
  }

  void end_line() {
    ++offset_;
    at_line_start_ = true;
    if ((last_ != '|' && last_ != '>') || !open_.empty()) return;
    // A block text: all lines that are indented more than the one that begins it.
    while (!at_end()) {
      const size_t start = text_.find_first_not_of(' ', offset_);
      const bool is_empty = start == std::string::npos || text_[start] == '\n';
      if (!is_empty && start - offset_ <= indentation_) break;
      const size_t end = text_.find('\n', offset_);
      skip_to(end == std::string::npos ? end : end + 1);
    }
    last_ = '\n';
  }

  void skip_quoted(char quote) {
    for (++offset_; !at_end(); ++offset_) {
      const bool doubled = quote == '\'' && text_.compare(offset_, 2, "''") == 0;
      if (text_[offset_] == quote && !doubled) break;
      if (doubled || (quote == '"' && text_[offset_] == '\\')) ++offset_;
    }
    skip_to(offset_ + 1);
    last_ = quote;
    begins_token_ = false;
  }

  void count_brackets(char c) {
    if ((c == '{' || c == '[') && (begins_token_ || !open_.empty())) open_.push_back({offset_, indentation_});
    if ((c == '}' || c == ']') && !open_.empty()) open_.pop_back();
  }

  const std::string& text_;
  size_t offset_ = 0;
  size_t indentation_ = 0;
  bool at_line_start_ = true;
  bool begins_token_ = true;  // what stands here begins a key or a value
  char last_ = '\n';          // the last character that is no blank
  std::vector<Bracket> open_;
};

}  // namespace

std::optional<Problem> find_false_blank(const YamlText& source) {
  Scanner scanner(source);
  while (!scanner.at_end()) {
    size_t plain = 0;
    if (!scanner.next(plain)) continue;
    size_t end = plain;
    const uint32_t code_point = next_code_point(source.text(), end);
    const char* name = name_of_false_blank(code_point);
    if (!name) continue;
    return Problem{source.place(plain), "",
                   std::string(name) + " (U+" + hex_number(code_point, 4, HexCase::kUpper) +
                       ") stands here; write an ordinary space, or put the text in quotes if it is meant"};
  }
  return std::nullopt;
}

std::optional<Problem> find_unclosed(const YamlText& source) {
  Scanner scanner(source);
  std::vector<Scanner::Bracket> open;
  while (!scanner.at_end() && open.empty()) {
    if (scanner.line_ends_brackets() || scanner.closes_another()) open = scanner.open();
    size_t plain = 0;
    scanner.next(plain);
  }
  if (open.empty()) open = scanner.open();
  if (open.empty()) return std::nullopt;
  const size_t offset = open.back().offset;
  const std::string bracket = source.text().substr(offset, 1);
  return Problem{source.place(offset), "", "this '" + bracket + "' is never closed"};
}

}  // namespace trainrun
