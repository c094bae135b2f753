#include "registry/formats/text/jinja/letters.h"

#include <utf8proc.h>

#include "registry/formats/text/jinja/search.h"
#include "registry/formats/text/unicode.h"

namespace trainrun::jinja {
namespace {

utf8proc_category_t category(char32_t character) { return utf8proc_category(static_cast<utf8proc_int32_t>(character)); }

bool is_letter(char32_t character) {
  const utf8proc_category_t kind = category(character);
  return kind >= UTF8PROC_CATEGORY_LU && kind <= UTF8PROC_CATEGORY_LO;
}

/// Letters that come in two cases.
bool is_cased(char32_t character) {
  const utf8proc_category_t kind = category(character);
  return kind == UTF8PROC_CATEGORY_LU || kind == UTF8PROC_CATEGORY_LL || kind == UTF8PROC_CATEGORY_LT;
}

template <class Change>
std::string each_changed(const std::string& text, const Change& change) {
  std::string made;
  for (size_t at = 0; at < text.size();) {
    const auto character = static_cast<utf8proc_int32_t>(unicode::next(text, at));
    unicode::append(made, static_cast<char32_t>(change(character)));
  }
  return made;
}

template <class Is>
bool is_all(const std::string& text, const Is& is) {
  for (size_t at = 0; at < text.size();) {
    if (!is(unicode::next(text, at))) return false;
  }
  return !text.empty();
}

bool is_cased_as(const std::string& text, utf8proc_category_t other) {
  bool any = false;
  for (size_t at = 0; at < text.size();) {
    const char32_t character = unicode::next(text, at);
    if (category(character) == other || category(character) == UTF8PROC_CATEGORY_LT) return false;
    any = any || is_cased(character);
  }
  return any;
}

}  // namespace

std::string upper(const std::string& text) { return each_changed(text, utf8proc_toupper); }
std::string lower(const std::string& text) { return each_changed(text, utf8proc_tolower); }

std::string title(const std::string& text) {
  bool within = false;
  return each_changed(text, [&](utf8proc_int32_t character) {
    const utf8proc_int32_t changed = within ? utf8proc_tolower(character) : utf8proc_totitle(character);
    within = is_cased(static_cast<char32_t>(character));
    return changed;
  });
}

std::string capitalized(const std::string& text) {
  bool within = false;
  return each_changed(text, [&](utf8proc_int32_t character) {
    const utf8proc_int32_t changed = within ? utf8proc_tolower(character) : utf8proc_totitle(character);
    within = true;
    return changed;
  });
}

bool is_digits(const std::string& text) {
  return is_all(text, [](char32_t c) { return category(c) == UTF8PROC_CATEGORY_ND; });
}
bool is_letters(const std::string& text) { return is_all(text, is_letter); }
bool is_letters_or_digits(const std::string& text) {
  return is_all(text, [](char32_t c) { return is_letter(c) || unicode::is_numeric(c); });
}
bool is_space(const std::string& text) { return is_all(text, is_python_space); }
bool is_upper(const std::string& text) { return is_cased_as(text, UTF8PROC_CATEGORY_LL); }
bool is_lower(const std::string& text) { return is_cased_as(text, UTF8PROC_CATEGORY_LU); }

size_t word_at_begin(std::string_view text) {
  size_t at = 0;
  while (at < text.size()) {
    size_t next = at;
    if (is_python_space(unicode::next(text, next))) break;
    at = next;
  }
  return at;
}

size_t word_at_end(std::string_view text) {
  size_t begin = text.size();
  while (begin > 0) {
    const size_t last = unicode::start_of_last(text, begin);
    size_t at = last;
    if (is_python_space(unicode::next(text, at))) break;
    begin = last;
  }
  return text.size() - begin;
}

std::string stripped(const std::string& text, const std::optional<std::string>& chars, bool at_begin, bool at_end,
                     Budget& budget) {
  std::string_view rest = text;
  if (!chars) {
    if (at_begin) rest.remove_prefix(leading_space(rest));
    if (at_end) rest.remove_suffix(trailing_space(rest));
    return std::string(rest);
  }
  const auto goes = [&](std::string_view character) {
    budget.spend(1 + chars->size() / 64);
    return chars->find(character) != std::string::npos;
  };
  while (at_begin && !rest.empty() && goes(rest.substr(0, unicode::length(rest[0])))) {
    rest.remove_prefix(unicode::length(rest[0]));
  }
  while (at_end && !rest.empty() && goes(rest.substr(unicode::start_of_last(rest, rest.size())))) {
    rest.remove_suffix(rest.size() - unicode::start_of_last(rest, rest.size()));
  }
  return std::string(rest);
}

std::string replaced(const std::string& text, const std::string& what, const std::string& by, int64_t most,
                     Budget& budget) {
  std::string made;
  size_t at = 0;
  for (int64_t count = 0; most < 0 || count < most; ++count) {
    const size_t found = find_text(text, what, at);
    if (found == std::string::npos) break;
    budget.build(by.size() + found - at);
    made.append(text, at, found - at);
    made += by;
    at = found + what.size();
    if (!what.empty()) continue;
    if (at == text.size()) return made;  // between all characters, and at both ends
    const size_t length = unicode::length(text[at]);
    made.append(text, at, length);
    at += length;
  }
  return made.append(text, at);
}

}  // namespace trainrun::jinja
