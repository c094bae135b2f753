#include "registry/language/text_forms.h"

#include <array>
#include <cstdio>

#include "registry/language/error.h"
#include "registry/language/utf8.h"

namespace trainrun {

std::string in_marks(std::string_view text, char mark) {
  std::string result(1, mark);
  for (const char c : text) {
    if (c == mark) result += mark;
    result += c;
  }
  return result + mark;
}

std::string shortened(std::string_view text, size_t most) {
  if (text.size() <= most) return std::string(text);
  while (most > 0 && !begins_character(text[most])) --most;
  return std::string(text.substr(0, most)) + "…";
}

std::string join_first(std::vector<std::string> words, size_t most, LeftOut left_out) {
  const size_t count = words.size();
  if (count > most) {
    words.resize(most);
    words.push_back(left_out == LeftOut::kMark ? "…" : "… (" + std::to_string(count) + " in all)");
  }
  return join(words);
}

std::string counted(int64_t count, const std::string& one, const std::string& many) {
  return std::to_string(count) + " " + (count == 1 ? one : many);
}

std::string in_figures(double number, int figures) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.*g", figures, number);
  return text.data();
}

std::string lower_ascii(std::string text) {
  for (char& c : text) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return text;
}

}  // namespace trainrun
