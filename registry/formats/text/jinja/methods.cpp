#include <algorithm>
#include <array>

#include "registry/formats/text/jinja/expression.h"
#include "registry/formats/text/jinja/letters.h"
#include "registry/formats/text/jinja/search.h"
#include "registry/formats/text/unicode.h"

// The methods of texts, lists and dicts that change nothing.

namespace trainrun::jinja {
namespace {

Value text_list(const std::vector<std::string_view>& parts, Budget& budget) {
  Values items;
  for (const std::string_view part : parts) items.push_back(Value::text(std::string(part), budget));
  return Value::list(std::move(items), budget);
}

/// Words between whitespace, `most` cuts at most; from the end if `from_right`.
std::vector<std::string_view> words_of(std::string_view text, int64_t most, bool from_right) {
  std::vector<std::string_view> words;
  while (true) {
    if (from_right) {
      text.remove_suffix(trailing_space(text));
    } else {
      text.remove_prefix(leading_space(text));
    }
    if (text.empty()) break;
    const bool is_rest = most >= 0 && static_cast<int64_t>(words.size()) == most;
    const size_t word = is_rest ? text.size() : (from_right ? word_at_end(text) : word_at_begin(text));
    words.push_back(from_right ? text.substr(text.size() - word) : text.substr(0, word));
    if (from_right) {
      text.remove_suffix(word);
    } else {
      text.remove_prefix(word);
    }
  }
  if (from_right) std::reverse(words.begin(), words.end());
  return words;
}

size_t last_place(std::string_view text, std::string_view what, Budget& budget) {
  if (what.size() <= text.size()) budget.build(sizeof(size_t) * what.size());
  return rfind_text(text, what);
}

std::vector<std::string_view> pieces_of(std::string_view text, std::string_view separator, int64_t most,
                                        bool from_right, Budget& budget) {
  if (separator.empty()) throw TemplateError("the separator is empty");
  std::vector<std::string_view> pieces;
  while (most < 0 || static_cast<int64_t>(pieces.size()) < most) {
    const size_t found = from_right ? last_place(text, separator, budget) : find_text(text, separator);
    if (found == std::string_view::npos) break;
    pieces.push_back(from_right ? text.substr(found + separator.size()) : text.substr(0, found));
    text = from_right ? text.substr(0, found) : text.substr(found + separator.size());
  }
  pieces.push_back(text);
  if (from_right) std::reverse(pieces.begin(), pieces.end());
  return pieces;
}

Value split(const std::string& text, const Bound& given, Budget& budget, bool from_right) {
  const int64_t most = given.integer(1, -1);
  if (!given[0] || given.at(0).is_none()) return text_list(words_of(text, most, from_right), budget);
  return text_list(pieces_of(text, given.text(0, ""), most, from_right, budget), budget);
}

Value split_lines(const std::string& text, bool keeps_ends, Budget& budget) {
  std::vector<std::string_view> lines;
  const std::string_view all = text;
  for (size_t begin = 0, at = 0; at < text.size();) {
    const size_t stop = at;
    const char32_t c = unicode::next(all, at);
    const bool ends = (c >= 0x0A && c <= 0x0D) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 || c == 0x2029;
    if (c == '\r' && at < text.size() && text[at] == '\n') ++at;
    if (ends || at == text.size()) {
      const size_t end = ends && !keeps_ends ? stop : at;
      lines.push_back(all.substr(begin, end - begin));
      begin = at;
    }
  }
  return text_list(lines, budget);
}

/// startswith and endswith, of a text or any of a tuple.
bool has_affix(const std::string& text, const Value& affix, bool at_end, Budget& budget) {
  spend_on(budget, affix);
  if (const List* several = affix.as_list()) {
    return std::any_of(several->items.begin(), several->items.end(),
                       [&](const Value& one) { return !one.as_list() && has_affix(text, one, at_end, budget); });
  }
  require_defined(affix);
  if (!affix.as_text()) throw TemplateError(std::string("expected a string, not a value of type ") + affix.type_name());
  return at_end ? text.ends_with(*affix.as_text()) : text.starts_with(*affix.as_text());
}

Value find_in(const std::string& text, const Bound& given, bool from_right, bool must, Budget& budget) {
  const std::string what = given.text(0, "");
  const size_t found = from_right ? last_place(text, what, budget) : find_text(text, what);
  if (found == std::string::npos && must) throw TemplateError("there is no such part in the text");
  if (found == std::string::npos) return Value::integer(-1);
  return Value::integer(static_cast<int64_t>(unicode::count(std::string_view(text).substr(0, found))));
}

Value without_affix(const std::string& text, const std::string& affix, bool at_end, Budget& budget) {
  const bool has = at_end ? text.ends_with(affix) : text.starts_with(affix);
  if (!has) return Value::text(text, budget);
  return Value::text(at_end ? text.substr(0, text.size() - affix.size()) : text.substr(affix.size()), budget);
}

using TextMethod = Value (*)(Budget&, const std::string&, const Arguments&);

template <bool kAtBegin, bool kAtEnd>
Value strip(Budget& budget, const std::string& text, const Arguments& given) {
  const Bound bound("strip", given, {"chars"});
  const bool plain = !bound[0] || bound.at(0).is_none();
  const auto chars = plain ? std::nullopt : std::optional(bound.text(0, ""));
  return Value::text(stripped(text, chars, kAtBegin, kAtEnd, budget), budget);
}

template <std::string (*kChange)(const std::string&)>
Value changed(Budget& budget, const std::string& text, const Arguments& given) {
  const Bound none("this method", given, {});
  spend_on_letters(budget, text);
  return Value::text(kChange(text), budget);
}

template <bool (*kHolds)(const std::string&)>
Value asked(Budget& budget, const std::string& text, const Arguments& given) {
  const Bound none("this method", given, {});
  spend_on_letters(budget, text);
  return Value::flag(kHolds(text));
}

template <bool kAtEnd>
Value affixed(Budget& budget, const std::string& text, const Arguments& given) {
  budget.spend();
  const Bound bound(kAtEnd ? "endswith" : "startswith", given, {"affix"}, 1);
  return Value::flag(has_affix(text, bound.at(0), kAtEnd, budget));
}

template <bool kFromRight>
Value split_method(Budget& budget, const std::string& text, const Arguments& given) {
  return split(text, Bound(kFromRight ? "rsplit" : "split", given, {"sep", "maxsplit"}), budget, kFromRight);
}

template <bool kFromRight, bool kMust>
Value find_method(Budget& budget, const std::string& text, const Arguments& given) {
  return find_in(text, Bound("find", given, {"sub"}, 1), kFromRight, kMust, budget);
}

template <bool kAtEnd>
Value remove_affix(Budget& budget, const std::string& text, const Arguments& given) {
  const Bound bound(kAtEnd ? "removesuffix" : "removeprefix", given, {"affix"}, 1);
  return without_affix(text, bound.text(0, ""), kAtEnd, budget);
}

Value split_lines_method(Budget& budget, const std::string& text, const Arguments& given) {
  return split_lines(text, Bound("splitlines", given, {"keepends"}).flag(0, false), budget);
}

Value replace_method(Budget& budget, const std::string& text, const Arguments& given) {
  const Bound bound("replace", given, {"old", "new", "count"}, 2);
  return Value::text(replaced(text, bound.text(0, ""), bound.text(1, ""), bound.integer(2, -1), budget), budget);
}

Value join_method(Budget& budget, const std::string& text, const Arguments& given) {
  const Value items = iterated(Bound("join", given, {"iterable"}, 1).at(0), budget);
  std::string joined;
  for (const Value& item : items.as_list()->items) {
    if (!item.as_text())
      throw TemplateError(std::string("join expects texts, not a value of type ") + item.type_name());
    if (&item != items.as_list()->items.data()) joined += text;
    joined += *item.as_text();
    budget.build(text.size() + item.as_text()->size());
  }
  return Value::text(std::move(joined), budget);
}

Value count_method(Budget&, const std::string& text, const Arguments& given) {
  const std::string what = Bound("count", given, {"sub"}, 1).text(0, "");
  if (what.empty()) return Value::integer(static_cast<int64_t>(unicode::count(text)) + 1);
  int64_t count = 0;
  for (size_t at = find_text(text, what); at != std::string::npos; at = find_text(text, what, at + what.size()))
    ++count;
  return Value::integer(count);
}

const std::map<std::string, TextMethod>& text_methods() {
  static const std::map<std::string, TextMethod> methods = {
      {"strip", strip<true, true>},
      {"lstrip", strip<true, false>},
      {"rstrip", strip<false, true>},
      {"upper", changed<upper>},
      {"lower", changed<lower>},
      {"title", changed<title>},
      {"capitalize", changed<capitalized>},
      {"isdigit", asked<is_digits>},
      {"isalpha", asked<is_letters>},
      {"isalnum", asked<is_letters_or_digits>},
      {"isspace", asked<is_space>},
      {"isupper", asked<is_upper>},
      {"islower", asked<is_lower>},
      {"startswith", affixed<false>},
      {"endswith", affixed<true>},
      {"split", split_method<false>},
      {"rsplit", split_method<true>},
      {"splitlines", split_lines_method},
      {"find", find_method<false, false>},
      {"rfind", find_method<true, false>},
      {"index", find_method<false, true>},
      {"rindex", find_method<true, true>},
      {"removeprefix", remove_affix<false>},
      {"removesuffix", remove_affix<true>},
      {"replace", replace_method},
      {"join", join_method},
      {"count", count_method},
  };
  return methods;
}

/// Python's other methods are refused by name: a template that calls them would else see nothing there.
constexpr std::array kUnknownOfTexts = {"center",    "encode",    "expandtabs", "format",     "format_map",
                                        "ljust",     "partition", "rjust",      "rpartition", "swapcase",
                                        "translate", "zfill",     "casefold"};
constexpr std::array kChangingOfLists = {"append", "clear", "extend", "insert", "pop", "remove", "reverse", "sort"};
constexpr std::array kChangingOfDicts = {"clear", "pop", "popitem", "setdefault", "update"};

template <size_t kCount>
bool is_among(const std::array<const char*, kCount>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

Value of_list(const Value& subject, const std::string& name) {
  return Value::function(name, [subject, name](Budget& budget, const Arguments& given) {
    const Bound bound(name, given, {"value"}, 1);
    const Values& items = subject.as_list()->items;
    const auto same = [&](const Value& each) { return equal(each, bound.at(0), budget); };
    if (name == "count") return Value::integer(std::count_if(items.begin(), items.end(), same));
    const auto found = std::find_if(items.begin(), items.end(), same);
    if (found == items.end()) throw TemplateError("the list has no such element");
    return Value::integer(found - items.begin());
  });
}

Value of_dict(const Value& subject, const std::string& name) {
  return Value::function(name, [subject, name](Budget& budget, const Arguments& given) {
    const Dict& dict = *subject.as_dict();
    if (name == "get") {
      const Bound bound("get", given, {"key", "default"}, 1);
      const Value* found = dict.find(bound.at(0), budget);
      return found ? *found : (bound[1] ? bound.at(1) : Value::none());
    }
    const Bound none(name, given, {});
    if (name == "copy") return subject;
    Values items;
    for (const auto& [key, value] : dict.members) {
      if (name == "items") {
        items.push_back(Value::list({key, value}, budget, /*is_tuple=*/true));
      } else {
        items.push_back(name == "keys" ? key : value);
      }
    }
    return Value::list(std::move(items), budget);
  });
}

}  // namespace

std::optional<Value> method(const Value& subject, const std::string& name) {
  if (subject.as_text()) {
    const auto found = text_methods().find(name);
    if (found != text_methods().end()) {
      return Value::function(name, [subject, run = found->second](Budget& budget, const Arguments& given) {
        spend_on(budget, subject);
        return run(budget, *subject.as_text(), given);
      });
    }
    if (is_among(kUnknownOfTexts, name)) throw TemplateError("the method " + name + " of texts is not supported");
  }
  if (subject.as_list()) {
    if (name == "count" || name == "index") return of_list(subject, name);
    if (is_among(kChangingOfLists, name))
      throw TemplateError("." + name + "() would change a list, which templates cannot");
  }
  if (subject.as_dict()) {
    for (const char* known : {"items", "keys", "values", "get", "copy"}) {
      if (name == known) return of_dict(subject, name);
    }
    if (is_among(kChangingOfDicts, name))
      throw TemplateError("." + name + "() would change a dict, which templates cannot");
  }
  return std::nullopt;
}

}  // namespace trainrun::jinja
