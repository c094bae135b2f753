#include "runner/recipe/yaml_text.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "registry/language/hex.h"
#include "registry/language/utf8.h"
#include "runner/base/limits.h"

namespace trainrun {
namespace {

std::string with_plain_newlines(std::string_view text) {
  if (text.starts_with("\xEF\xBB\xBF")) text.remove_prefix(3);
  std::string result;
  result.reserve(text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\r') {
      result += text[i];
    } else if (i + 1 == text.size() || text[i + 1] != '\n') {
      result += '\n';
    }
  }
  return result;
}

bool is_control(uint32_t code_point) {
  const bool blank = code_point == '\n' || code_point == '\t' || code_point == 0x85;
  return !blank && (code_point < 0x20 || (code_point >= 0x7F && code_point < 0xA0));
}

}  // namespace

YamlText::YamlText(std::string_view text, std::shared_ptr<const std::string> file)
    : text_(with_plain_newlines(text)), file_(std::move(file)) {
  for (size_t i = 0; i < text_.size(); ++i) {
    if (text_[i] == '\n') line_starts_.push_back(i + 1);
  }
}

size_t YamlText::line_of(size_t offset) const {
  const auto after = std::upper_bound(line_starts_.begin(), line_starts_.end(), offset);
  return static_cast<size_t>(after - line_starts_.begin()) - 1;
}

std::string_view YamlText::line(size_t line) const {
  const size_t end = line + 1 < line_starts_.size() ? line_starts_[line + 1] - 1 : text_.size();
  return std::string_view(text_).substr(line_starts_[line], end - line_starts_[line]);
}

Place YamlText::place(size_t offset) const {
  const size_t line = line_of(offset);
  if (line != counted_line_ || offset < counted_to_) {
    counted_line_ = line;
    counted_to_ = line_starts_[line];
    column_ = 0;
  }
  column_ += count_code_points(std::string_view(text_).substr(counted_to_, offset - counted_to_));
  counted_to_ = offset;
  return {file_, static_cast<int>(line) + 1, static_cast<int>(column_) + 1};
}

std::optional<Problem> YamlText::find_unreadable() const {
  if (text_.size() > kMaxRecipeBytes) {
    return Problem{place(0), "",
                   "larger than " + std::to_string(kMaxRecipeBytes >> 10) + " KiB, so this is not a recipe"};
  }
  size_t offset = 0;
  while (offset < text_.size()) {
    const size_t start = offset;
    const uint32_t code_point = next_code_point(text_, offset);
    if (code_point == kInvalidCodePoint) return Problem{place(start), "", "not UTF-8; save the file as UTF-8"};
    if (is_control(code_point)) {
      return Problem{place(start), "",
                     "control character U+" + hex_number(code_point, 4, HexCase::kUpper) +
                         "; write it as an escape in double quotes"};
    }
  }
  return std::nullopt;
}

std::string with_whole_escapes(const std::string& text) {
  std::string result;
  for (size_t offset = 0; offset < text.size();) {
    const size_t start = offset;
    if (next_code_point(text, offset) == kInvalidCodePoint) {
      result += '\xC2';
      ++offset;
    }
    result += text.substr(start, offset - start);
  }
  return result;
}

}  // namespace trainrun
