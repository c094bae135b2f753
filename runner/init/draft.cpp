#include "runner/init/draft.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdlib>

#include "registry/data/tables/column_facts.h"
#include "registry/language/text_forms.h"
#include "runner/base/text.h"

namespace trainrun {

Length length_for(int64_t samples, int64_t batch_size, int64_t steps, int64_t least, int64_t most) {
  const int64_t per_epoch = std::max<int64_t>(1, (samples + batch_size - 1) / batch_size);
  const int64_t epochs = std::clamp((steps + per_epoch - 1) / per_epoch, least, most);
  return {epochs, std::max<int64_t>(3, epochs / 4)};
}

int64_t power_of_two(double number, int64_t least, int64_t most) {
  const auto power = static_cast<int64_t>(std::llround(std::exp2(std::round(std::log2(std::max(number, 1.0))))));
  return std::clamp(power, least, most);
}

std::string recipe_word(const std::string& text) {
  const auto is_safe = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '.' || c == '/' || c == '-';
  };
  const bool is_path = text.find('/') != std::string::npos || text.find('.') != std::string::npos;
  const bool begins_well = !text.empty() && (std::isalpha(static_cast<unsigned char>(text[0])) || text[0] == '/');
  if (is_path && begins_well && std::all_of(text.begin(), text.end(), is_safe)) return text;
  std::string escaped = yaml_text(text);
  for (size_t at = 0; (at = escaped.find("${", at)) != std::string::npos; at += 3) escaped.insert(at, "$");
  return escaped;
}

std::string recipe_list(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : ", ") + recipe_word(word);
  return "[" + text + "]";
}

std::string counts_text(const std::map<std::string, int64_t>& counts) {
  constexpr size_t kMostShown = 6;
  std::vector<std::pair<std::string, int64_t>> sorted(counts.begin(), counts.end());
  std::stable_sort(sorted.begin(), sorted.end(), [](const auto& a, const auto& b) { return a.second > b.second; });
  std::vector<std::string> words;
  for (const auto& [name, count] : sorted) words.push_back(shortened(name, 40) + " " + grouped(count));
  return join_first(std::move(words), kMostShown, LeftOut::kCount);
}

bool is_unbalanced(const std::map<std::string, int64_t>& counts) {
  constexpr int64_t kMuch = 4;
  if (counts.size() < 2) return false;
  int64_t least = counts.begin()->second, most = least;
  for (const auto& [name, count] : counts) {
    least = std::min(least, count);
    most = std::max(most, count);
  }
  return most >= kMuch * std::max<int64_t>(least, 1);
}

namespace {

/// A comment, which names of columns and of files with line ends must not end.
std::string comment_of(std::string text) {
  for (char& c : text) {
    if (static_cast<unsigned char>(c) < ' ') c = ' ';
  }
  return "# " + text + "\n";
}

}  // namespace

std::string heading(const std::string& subject) {
  return comment_of(subject + ". Written by `trainrun init`: change what you like.");
}

std::string commented(const std::string& line, const std::string& comment) {
  constexpr size_t kColumn = 54;
  if (comment.empty()) return line + "\n";
  return line + std::string(text_width(line) < kColumn ? kColumn - text_width(line) : 2, ' ') + comment_of(comment);
}

std::string metrics_text(bool unbalanced) {
  if (!unbalanced) return "metrics: [Accuracy]\n";
  return commented("metrics: [Accuracy, {type: F1, average: macro}]",
                   "some classes are rare, and F1 counts each class alike");
}

}  // namespace trainrun
