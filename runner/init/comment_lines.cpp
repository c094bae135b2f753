#include "runner/init/comment_lines.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <vector>

#include "registry/language/error.h"
#include "registry/language/text_forms.h"
#include "runner/init/file_encoding.h"

namespace trainrun {
namespace {

/// The beginning of a table, without its blank lines.
struct TableHead {
  int64_t comments = 0;      // lines that begin with '#'
  std::string last_comment;  // the last of them, and its number
  int64_t last_comment_line = 0;
  int64_t first_line = 0;               // the number of the first other line
  std::vector<std::string> lines = {};  // the first two others
};

TableHead head_of(const std::string& path, const std::optional<TextEncoding>& encoding) {
  TableHead head;
  TextLines lines(path, encoding);
  for (std::string line; head.lines.size() < 2 && lines.next(line);) {
    line.resize(line.find_last_not_of("\r\n") + 1);
    if (line.empty()) continue;
    if (head.lines.empty() && line.starts_with('#')) {
      ++head.comments;
      head.last_comment = line;
      head.last_comment_line = lines.number();
      continue;
    }
    if (head.comments == 0) break;
    if (head.lines.empty()) head.first_line = lines.number();
    head.lines.push_back(line);
  }
  return head;
}

/// The character that most probably is between the columns of a line; a comma where none is.
char seeming_delimiter_of(const std::string& line) {
  constexpr std::array kDelimiters = {',', ';', '\t', '|'};
  return *std::ranges::max_element(kDelimiters, {}, [&](char c) { return std::ranges::count(line, c); });
}

std::vector<std::string_view> fields_of(std::string_view line, char delimiter) {
  std::vector<std::string_view> fields;
  for (size_t begin = 0; begin <= line.size();) {
    const size_t end = std::min(line.find(delimiter, begin), line.size());
    fields.push_back(line.substr(begin, end - begin));
    begin = end + 1;
  }
  return fields;
}

bool seems_number(std::string_view field) {
  return field.find_first_of("0123456789") != std::string_view::npos &&
         field.find_first_not_of("0123456789+-.,eE \"") == std::string_view::npos;
}

/// Whether the first of two lines rather has the names of columns than values: numbers are below words.
bool are_names(const std::vector<std::string>& lines, char delimiter) {
  if (lines.size() < 2) return false;
  const auto first = fields_of(lines[0], delimiter);
  const auto second = fields_of(lines[1], delimiter);
  for (size_t i = 0; i < std::min(first.size(), second.size()); ++i) {
    if (!seems_number(first[i]) && seems_number(second[i])) return true;
  }
  return false;
}

}  // namespace

std::string doubt_about_comments(const std::string& path, const std::optional<TextEncoding>& encoding) {
  const TableHead head = head_of(path, encoding);
  if (head.comments == 0 || head.lines.empty()) return "";
  const char delimiter = seeming_delimiter_of(head.lines[0]);
  const size_t columns = fields_of(head.lines[0], delimiter).size();
  const bool may_be_names =
      columns > 1 && fields_of(head.last_comment, delimiter).size() == columns && !are_names(head.lines, delimiter);
  const TextEncoding own = encoding.value_or(TextEncoding::kUtf8);
  const auto command = [&](int64_t first_line) {
    const bool is_wide = own == TextEncoding::kUtf16 || own == TextEncoding::kUtf16Le || own == TextEncoding::kUtf16Be;
    return conversion_command(path, is_wide ? iconv_name(own) : "", first_line);
  };
  if (may_be_names && head.comments == 1) {
    return "the first line of " + path +
           " begins with '#' and is read as the names of the columns; if it is a comment, " +
           "leave it out: " + command(head.first_line);
  }
  const int64_t comments = may_be_names ? head.comments - 1 : head.comments;
  throw DataError(path + ":1: the table begins with " + counted(comments, "comment", "comments") +
                  ", which no recipe can leave out; write a file without " + (comments == 1 ? "it" : "them") + ": " +
                  command(may_be_names ? head.last_comment_line : head.first_line));
}

}  // namespace trainrun
