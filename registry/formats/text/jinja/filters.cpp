#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>

#include "registry/formats/text/jinja/expression.h"
#include "registry/formats/text/jinja/letters.h"
#include "registry/formats/text/jinja/list_filters.h"
#include "registry/formats/text/unicode.h"

// The filters of Jinja that make one value of another; those that go through lists are in list_filters.cpp.

namespace trainrun::jinja {
namespace {

Value trim(Budget& budget, const Value& subject, const Arguments& given) {
  const Bound bound("trim", given, {"chars"});
  const bool plain = !bound[0] || bound.at(0).is_none();
  const auto chars = plain ? std::nullopt : std::optional(bound.text(0, ""));
  return Value::text(stripped(str(subject, budget), chars, true, true, budget), budget);
}

/// Words begin behind whitespace, hyphens and brackets.
std::string title_of_words(const std::string& text) {
  std::string made;
  bool begins = true;
  for (size_t at = 0; at < text.size();) {
    const size_t begin = at;
    const char32_t c = unicode::next(text, at);
    const std::string own = text.substr(begin, at - begin);
    made += begins ? upper(own) : lower(own);
    begins = is_python_space(c) || c == '-' || c == '(' || c == '{' || c == '[' || c == '<';
  }
  return made;
}

template <std::string (*kChange)(const std::string&)>
Value changed_text(Budget& budget, const Value& subject, const Arguments& given) {
  const Bound none("this filter", given, {});
  const std::string text = str(subject, budget);
  spend_on_letters(budget, text);
  return Value::text(kChange(text), budget);
}

std::string same(const std::string& text) { return text; }

Value safe(Budget& budget, const Value& subject, const Arguments& given) {
  const Bound none("safe", given, {});
  return Value::safe(str(subject, budget), budget);
}

Value or_default(Budget& budget, const Value& subject, const Arguments& given) {
  const Bound bound("default", given, {"default_value", "boolean"});
  const bool missing = subject.is_undefined() || (bound.flag(1, false) && !is_true(subject));
  if (!missing) return subject;
  return bound[0] ? bound.at(0) : Value::text("", budget);
}

Value length(Budget&, const Value& subject, const Arguments& given) {
  const Bound none("length", given, {});
  return Value::integer(length_of(subject));
}

/// A number as Python reads it from a text.
template <class Number>
std::optional<Number> read_number(const std::string& text, int base) {
  Budget none;  // only characters have a price
  std::string digits = stripped(text, std::nullopt, true, true, none);
  if (digits.starts_with('+') && !digits.starts_with("+-")) digits.erase(0, 1);
  std::erase(digits, '_');
  Number number = 0;
  std::from_chars_result result;
  const char* end = digits.data() + digits.size();
  if constexpr (std::is_integral_v<Number>) {
    result = std::from_chars(digits.data(), end, number, base);
  } else {
    result = std::from_chars(digits.data(), end, number);
  }
  if (digits.empty() || result.ec != std::errc() || result.ptr != end) return std::nullopt;
  return number;
}

Value to_integer(Budget&, const Value& subject, const Arguments& given) {
  const Bound bound("int", given, {"default", "base"});
  Value otherwise = bound[0] ? bound.at(0) : Value::integer(0);
  require_defined(subject);
  if (const auto integer = whole(subject)) return Value::integer(*integer);
  std::optional<double> number = real(subject);
  if (const std::string* text = subject.as_text()) {
    const int64_t base = bound.integer(1, 10);
    if (base < 2 || base > 36) throw TemplateError("int expects a base from 2 to 36");
    if (const auto integer = read_number<int64_t>(*text, static_cast<int>(base))) return Value::integer(*integer);
    number = read_number<double>(*text, 10);
  }
  if (!number || !(std::abs(*number) < 9e18)) return otherwise;
  return Value::integer(static_cast<int64_t>(*number));
}

Value to_float(Budget&, const Value& subject, const Arguments& given) {
  const Bound bound("float", given, {"default"});
  require_defined(subject);
  if (const auto number = real(subject)) return Value::number(*number);
  const auto read = subject.as_text() ? read_number<double>(*subject.as_text(), 10) : std::nullopt;
  if (read) return Value::number(*read);
  return bound[0] ? bound.at(0) : Value::number(0);
}

Value absolute(Budget&, const Value& subject, const Arguments& given) {
  const Bound none("abs", given, {});
  require_defined(subject);
  const auto number = real(subject);
  if (!number) throw TemplateError(std::string("abs expects a number, not a ") + subject.type_name());
  if (*number < 0) return negate(subject);
  return whole(subject) ? Value::integer(*whole(subject)) : subject;
}

Value rounded(Budget&, const Value& subject, const Arguments& given) {
  const Bound bound("round", given, {"precision", "method"});
  const int64_t precision = bound.integer(0, 0);
  const std::string how = bound.text(1, "common");
  require_defined(subject);
  const auto number = real(subject);
  if (!number) throw TemplateError(std::string("round expects a number, not a ") + subject.type_name());
  if (precision < 0 || precision > 20) throw TemplateError("round expects a precision from 0 to 20");
  if (how == "common") {
    if (whole(subject)) return Value::integer(*whole(subject));
    char digits[400];
    std::snprintf(digits, sizeof digits, "%.*f", static_cast<int>(precision), *number);
    return Value::number(std::strtod(digits, nullptr));
  }
  if (how != "ceil" && how != "floor") throw TemplateError("round knows the methods common, ceil and floor");
  const double power = std::pow(10.0, static_cast<double>(precision));
  return Value::number((how == "ceil" ? std::ceil(*number * power) : std::floor(*number * power)) / power);
}

Value replace(Budget& budget, const Value& subject, const Arguments& given) {
  const Bound bound("replace", given, {"old", "new", "count"}, 2);
  const int64_t most = bound[2] && bound.at(2).is_none() ? -1 : bound.integer(2, -1);
  return Value::text(replaced(str(subject, budget), str(bound.at(0), budget), str(bound.at(1), budget), most, budget),
                     budget);
}

/// "  ", or so many spaces.
std::string indentation(const Value& width, Budget& budget) {
  if (const std::string* text = width.as_text()) return *text;
  const auto count = whole(width);
  if (!count || *count > 1000) throw TemplateError("an indentation is a text, or a number of at most 1000 spaces");
  budget.spend();
  return std::string(static_cast<size_t>(std::max<int64_t>(*count, 0)), ' ');
}

Value indent(Budget& budget, const Value& subject, const Arguments& given) {
  const Bound bound("indent", given, {"width", "first", "blank"});
  const std::string space = indentation(bound[0] ? bound.at(0) : Value::integer(4), budget);
  require_defined(subject);
  if (!subject.as_text()) throw TemplateError(std::string("indent expects a text, not a ") + subject.type_name());
  const Value text = Value::text(*subject.as_text() + "\n", budget);
  const Value lines = call(budget, *method(text, "splitlines"), {});
  std::string made = bound.flag(1, false) ? space : "";
  for (size_t i = 0; i < lines.as_list()->items.size(); ++i) {
    const std::string& line = *lines.as_list()->items[i].as_text();
    if (i > 0) made += (line.empty() && !bound.flag(2, false)) ? "\n" : "\n" + space;
    made += line;
    budget.build(space.size());
  }
  return Value::text(std::move(made), budget);
}

Value to_json(Budget& budget, const Value& subject, const Arguments& given) {
  const Bound bound("tojson", given, {"ensure_ascii", "indent", "separators", "sort_keys"});
  JsonStyle style;
  style.ensure_ascii = bound.flag(0, false);
  style.sort_keys = bound.flag(3, false);
  if (bound[1] && !bound.at(1).is_none()) {
    style.indent = indentation(bound.at(1), budget);
    style.item_separator = ",";
  }
  if (bound[2] && !bound.at(2).is_none()) {
    const List* both = bound.at(2).as_list();
    if (!both || both->items.size() != 2 || !both->items[0].as_text() || !both->items[1].as_text()) {
      throw TemplateError("tojson expects two texts as separators");
    }
    style.item_separator = *both->items[0].as_text();
    style.key_separator = *both->items[1].as_text();
  }
  require_defined(subject);
  return Value::text(json_text(subject, style, budget), budget);
}

Value attribute_of(Budget& budget, const Value& subject, const Arguments& given) {
  return attribute(budget, subject, Bound("attr", given, {"name"}, 1).text(0, ""));
}

using Filter = Value (*)(Budget&, const Value&, const Arguments&);

const std::map<std::string, Filter>& filters() {
  static const std::map<std::string, Filter> all = [] {
    std::map<std::string, Filter> made = {
        {"trim", trim},
        {"upper", changed_text<upper>},
        {"lower", changed_text<lower>},
        {"title", changed_text<title_of_words>},
        {"capitalize", changed_text<capitalized>},
        {"string", changed_text<same>},
        {"safe", safe},
        {"default", or_default},
        {"d", or_default},
        {"length", length},
        {"count", length},
        {"int", to_integer},
        {"float", to_float},
        {"abs", absolute},
        {"round", rounded},
        {"replace", replace},
        {"indent", indent},
        {"tojson", to_json},
        {"attr", attribute_of},
    };
    for (const auto& [name, one] : list_filters()) made.emplace(name, one);
    return made;
  }();
  return all;
}

}  // namespace

Value filter(Budget& budget, const std::string& name, const Value& subject, const Arguments& arguments) {
  budget.spend();
  spend_on(budget, subject);
  spend_on(budget, arguments);
  const auto found = filters().find(name);
  if (found == filters().end()) throw TemplateError("there is no filter '" + name + "'");
  return found->second(budget, subject, arguments);
}

bool is_filter(const std::string& name) { return filters().contains(name); }

}  // namespace trainrun::jinja
