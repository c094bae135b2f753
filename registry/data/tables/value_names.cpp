#include "registry/data/tables/value_names.h"

#include <algorithm>
#include <vector>

#include "registry/language/text_forms.h"
#include "registry/language/text_number.h"
#include "registry/language/text_view.h"

namespace trainrun {
namespace {

/// "1" of "1.0", "1.0" of "1"; "" of what is not a whole number.
std::string other_form(const std::string& name) {
  const size_t begin = name.starts_with('-') ? 1 : 0;
  const size_t point = std::min(name.find('.'), name.size());
  const bool is_whole = point > begin && std::all_of(name.begin() + static_cast<std::ptrdiff_t>(begin),
                                                     name.begin() + static_cast<std::ptrdiff_t>(point), is_digit);
  if (!is_whole) return "";
  if (point == name.size()) return name + ".0";
  const bool has_zeros = point + 1 < name.size() && name.find_first_not_of('0', point + 1) == std::string::npos;
  return has_zeros ? name.substr(0, point) : "";
}

}  // namespace

std::optional<std::string> known_category(const Column& column, const std::string& name) {
  for (const std::string& form : {name, other_form(name)}) {
    const bool is_known =
        std::find(column.categories.begin(), column.categories.end(), form) != column.categories.end();
    if (is_known && (form == name || !form.empty())) return form;
  }
  return std::nullopt;
}

std::string boolean_name(const std::set<std::string>& words) {
  if (words.size() == 1) return data_number_of(*words.begin()) ? "" : *words.begin();
  std::string longest;
  std::vector<std::string> lower;
  for (const std::string& word : words) {
    lower.push_back(lower_ascii(word));
    if (lower.back().size() > longest.size()) longest = lower.back();
  }
  const bool is_one = std::ranges::all_of(lower, [&](const std::string& word) {
    return !word.empty() && longest.starts_with(word) && !data_number_of(word);
  });
  return is_one ? longest : "";
}

std::vector<std::string> boolean_words(const std::vector<Column>& columns) {
  if (columns.empty()) return {};
  std::vector<std::string> names;
  for (const std::set<std::string>& words : columns.back().words) {
    names.push_back(boolean_name(words));
    if (names.back().empty()) return {};
  }
  return names;
}

}  // namespace trainrun
