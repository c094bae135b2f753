#include "runner/report/errors/error_pages.h"

#include <algorithm>
#include <cctype>
#include <utility>

namespace trainrun {
namespace {

/// The sections of a small recipe without a mistake, in the order in which they are written.
const std::vector<std::string>& right_sections() {
  static const std::vector<std::string> sections = {
      "version: 1",
      "model:\n  layers:\n    - Flatten\n    - {type: Linear, out_features: 10}",
      "loss: CrossEntropyLoss",
      "dataset:\n  train: {type: Digits, split: train}",
      "optimizer: {type: SGD, lr: 0.1}",
      "training: {num_epochs: 1}"};
  return sections;
}

std::string key_of(const std::string& section) { return section.substr(0, section.find(':')); }

std::string lines_of(const std::vector<std::string>& sections) {
  std::string text;
  for (const std::string& section : sections) text += section + "\n";
  return text;
}

/// The small recipe with `changes` in the place of its own sections, and those that it does not have at the end. A
/// change without a key is the whole recipe.
std::string recipe_with(const std::vector<std::string>& changes) {
  std::vector<std::string> sections = right_sections();
  for (const std::string& change : changes) {
    if (change.find(':') == std::string::npos) return change + "\n";
    const auto same = [&](const std::string& section) { return key_of(section) == key_of(change); };
    const auto found = std::ranges::find_if(sections, same);
    if (found == sections.end()) {
      sections.push_back(change);
    } else {
      *found = change;
    }
  }
  return lines_of(sections);
}

std::string indented(const std::string& text, const std::string& indentation) {
  std::string result;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    result += indentation + text.substr(begin, end - begin) + "\n";
    begin = end + 1;
  }
  return result;
}

/// `text` in lines of at most 100 bytes, broken at spaces.
std::string wrapped(const std::string& text) {
  constexpr size_t kWidth = 100;
  std::string result;
  size_t begin = 0;
  while (text.size() - begin > kWidth) {
    const size_t space = text.rfind(' ', begin + kWidth);
    if (space == std::string::npos || space <= begin) break;
    result += text.substr(begin, space - begin) + "\n";
    begin = space + 1;
  }
  return result + text.substr(begin) + "\n";
}

/// "trainrun validate recipe.yaml optimizer.lr:0.2"
std::string call_of(const ErrorPage& page) {
  const std::string recipe = page.code == ErrorCode::kUnreadable ? "no_such_recipe.yaml" : "recipe.yaml";
  return "trainrun validate " + recipe + (page.given.empty() ? "" : " " + page.given);
}

}  // namespace

const std::vector<ErrorPage>& error_pages() {
  static const std::vector<ErrorPage> pages = [] {
    std::vector<ErrorPage> all;
    for (const auto add : {add_value_errors, add_file_errors, add_model_errors, add_job_errors}) add(all);
    std::ranges::sort(all, {}, &ErrorPage::code);
    return all;
  }();
  return pages;
}

const ErrorPage* find_error_page(const std::string& code) {
  std::string wanted = code;
  if (!wanted.empty()) wanted[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(wanted[0])));
  const auto found =
      std::ranges::find(error_pages(), wanted, [](const ErrorPage& page) { return code_text(page.code); });
  return found == error_pages().end() ? nullptr : &*found;
}

bool looks_like_code(const std::string& word) {
  constexpr size_t kLength = 5;
  return word.size() == kLength && (word[0] == 'T' || word[0] == 't') &&
         word.find_first_not_of("0123456789", 1) == std::string::npos;
}

std::string wrong_recipe(const ErrorPage& page) { return recipe_with(page.wrong); }

std::string mended_recipe(const ErrorPage& page) { return recipe_with(page.mended); }

std::string to_text(const ErrorPage& page) {
  std::string text = code_text(page.code) + ": " + page.title + "\n\n" + wrapped(page.meaning);
  const bool is_of_call = page.wrong.empty();
  text += "\nFor example:\n\n" + indented(is_of_call ? call_of(page) : wrong_recipe(page), "    ");
  text += "\n" + wrapped(page.mend);
  if (!page.mended.empty()) text += "\n" + indented(lines_of(page.mended), "    ");
  return text;
}

std::string error_list() {
  std::string text;
  for (const ErrorPage& page : error_pages()) text += code_text(page.code) + "  " + page.title + "\n";
  return text;
}

std::string errors_markdown() {
  std::string text =
      "What `trainrun validate`, and every other verb that reads a recipe, finds wrong has a code at the end of its "
      "line, such as `[T0101]`. `trainrun explain T0101` prints what stands here, `trainrun explain --codes` lists all "
      "codes, and `trainrun validate --json RECIPE` gives them to other programs. A code never changes its meaning.\n";
  for (const ErrorPage& page : error_pages()) {
    text += "\n## " + code_text(page.code) + ": " + page.title + "\n\n" + page.meaning + "\n\n";
    text += page.wrong.empty() ? "```\n" + call_of(page) + "\n```\n" : "```yaml\n" + lines_of(page.wrong) + "```\n";
    text += "\n" + page.mend + "\n";
    if (!page.mended.empty()) text += "\n```yaml\n" + lines_of(page.mended) + "```\n";
  }
  return text;
}

}  // namespace trainrun
