#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "registry/language/error.h"
#include "registry/language/value.h"

namespace trainrun {

/// The text of a YAML document, without a byte order mark and with '\n' for every line break; turns byte offsets into
/// places. For one thread: looking up a place remembers where it was.
class YamlText {
 public:
  YamlText(std::string_view text, std::shared_ptr<const std::string> file);

  const std::string& text() const { return text_; }
  bool at(size_t offset, std::string_view wanted) const {
    return offset <= text_.size() && std::string_view(text_).substr(offset).starts_with(wanted);
  }

  // Lines count from 0 here.
  size_t line_of(size_t offset) const;
  size_t line_start(size_t line) const { return line_starts_[line]; }
  /// Without its line break.
  std::string_view line(size_t line) const;

  Place place(size_t offset) const;

  /// What yaml-cpp would not report but act on: text that is no UTF-8, control characters, too much of it.
  std::optional<Problem> find_unreadable() const;

  YamlText with_last_newline() const { return {text_ + "\n", file_}; }

 private:
  std::string text_;
  std::shared_ptr<const std::string> file_;
  std::vector<size_t> line_starts_ = {0};
  // Offsets mostly grow, so columns are counted on from the last one: a long line is walked once.
  mutable size_t counted_line_ = 0;
  mutable size_t counted_to_ = 0;
  mutable size_t column_ = 0;
};

/// yaml-cpp 0.7 makes of the escapes \N and \_ the bytes 85 and A0, which are no UTF-8: the code points they stand for.
std::string with_whole_escapes(const std::string& text);

}  // namespace trainrun
