#include <algorithm>
#include <cmath>

#include "registry/formats/text/jinja/expression.h"
#include "registry/formats/text/unicode.h"

// What operators compute, as Python does; whole numbers have 64 bits.

namespace trainrun::jinja {
namespace {

[[noreturn]] void fail_operands(const char* sign, const Value& a, const Value& b) {
  require_defined(a);
  require_defined(b);
  throw TemplateError(std::string("there is no ") + a.type_name() + " " + sign + " " + b.type_name());
}

[[noreturn]] void fail_overflow() { throw TemplateError("a whole number has more than 64 bits"); }

void require_divisor(double divisor) {
  if (divisor == 0) throw TemplateError("division by zero");
}

/// The text or list, so many times.
Value repeated(Budget& budget, const Value& what, int64_t times) {
  const auto count = static_cast<size_t>(std::max<int64_t>(times, 0));
  if (const std::string* text = what.as_text()) {
    if (text->empty() || count == 0) return Value::text("", budget);
    if (count > (size_t{1} << 29) / text->size()) budget.build(size_t{1} << 30);
    budget.build(text->size() * count);
    std::string made;
    for (size_t i = 0; i < count; ++i) made += *text;
    Budget paid;
    return Value::text(std::move(made), paid);
  }
  const Values& items = what.as_list()->items;
  if (!items.empty() && count > (size_t{1} << 22) / items.size()) budget.build(size_t{1} << 30);
  Values made;
  for (size_t i = 0; i < count; ++i) {
    budget.spend();
    made.insert(made.end(), items.begin(), items.end());
  }
  return Value::list(std::move(made), budget, what.as_list()->is_tuple);
}

/// Python's Markup escapes what is added to it; chat templates want no such text.
Value added_texts(Budget& budget, const Value& a, const Value& b) {
  const Value* plain = a.is_safe() == b.is_safe() ? nullptr : (a.is_safe() ? &b : &a);
  if (plain && plain->as_text()->find_first_of("&<>\"'") != std::string::npos) {
    throw TemplateError("what is added to a text that went through safe would be escaped for HTML; leave safe out");
  }
  budget.build(a.as_text()->size());
  std::string sum = *a.as_text() + *b.as_text();
  return a.is_safe() || b.is_safe() ? Value::safe(std::move(sum), budget) : Value::text(std::move(sum), budget);
}

bool is_sequence(const Value& value) { return value.as_text() || value.as_list(); }

}  // namespace

Value add(Budget& budget, const Value& a, const Value& b) {
  if (whole(a) && whole(b)) {
    int64_t sum = 0;
    if (__builtin_add_overflow(*whole(a), *whole(b), &sum)) fail_overflow();
    return Value::integer(sum);
  }
  if (real(a) && real(b)) return Value::number(*real(a) + *real(b));
  if (a.as_text() && b.as_text()) return added_texts(budget, a, b);
  if (a.as_list() && b.as_list() && a.as_list()->is_tuple == b.as_list()->is_tuple) {
    Values items = a.as_list()->items;
    items.insert(items.end(), b.as_list()->items.begin(), b.as_list()->items.end());
    return Value::list(std::move(items), budget, a.as_list()->is_tuple);
  }
  fail_operands("+", a, b);
}

Value subtract(Budget&, const Value& a, const Value& b) {
  if (whole(a) && whole(b)) {
    int64_t difference = 0;
    if (__builtin_sub_overflow(*whole(a), *whole(b), &difference)) fail_overflow();
    return Value::integer(difference);
  }
  if (real(a) && real(b)) return Value::number(*real(a) - *real(b));
  fail_operands("-", a, b);
}

Value multiply(Budget& budget, const Value& a, const Value& b) {
  if (whole(a) && whole(b)) {
    int64_t product = 0;
    if (__builtin_mul_overflow(*whole(a), *whole(b), &product)) fail_overflow();
    return Value::integer(product);
  }
  if (real(a) && real(b)) return Value::number(*real(a) * *real(b));
  if (is_sequence(a) && whole(b)) return repeated(budget, a, *whole(b));
  if (whole(a) && is_sequence(b)) return repeated(budget, b, *whole(a));
  fail_operands("*", a, b);
}

Value divide(Budget&, const Value& a, const Value& b) {
  if (!real(a) || !real(b)) fail_operands("/", a, b);
  require_divisor(*real(b));
  return Value::number(*real(a) / *real(b));
}

namespace {

/// Rounded down, as in Python, and what is left.
std::pair<int64_t, int64_t> divided(int64_t a, int64_t b) {
  if (a == INT64_MIN && b == -1) fail_overflow();
  int64_t quotient = a / b;
  int64_t rest = a % b;
  if (rest != 0 && (rest < 0) != (b < 0)) {
    --quotient;
    rest += b;
  }
  return {quotient, rest};
}

}  // namespace

Value floor_divide(Budget&, const Value& a, const Value& b) {
  if (!real(a) || !real(b)) fail_operands("//", a, b);
  require_divisor(*real(b));
  if (whole(a) && whole(b)) return Value::integer(divided(*whole(a), *whole(b)).first);
  return Value::number(std::floor(*real(a) / *real(b)));
}

Value modulo(Budget&, const Value& a, const Value& b) {
  if (a.as_text()) throw TemplateError("formatting by % is not supported; put texts together with ~");
  if (!real(a) || !real(b)) fail_operands("%", a, b);
  require_divisor(*real(b));
  if (whole(a) && whole(b)) return Value::integer(divided(*whole(a), *whole(b)).second);
  const double rest = std::fmod(*real(a), *real(b));
  return Value::number(rest != 0 && (rest < 0) != (*real(b) < 0) ? rest + *real(b) : rest);
}

Value raise_power(Budget& budget, const Value& a, const Value& b) {
  if (!real(a) || !real(b)) fail_operands("**", a, b);
  if (!whole(a) || !whole(b) || *whole(b) < 0) return Value::number(std::pow(*real(a), *real(b)));
  const int64_t base = *whole(a);
  if (base == 0 || base == 1) return Value::integer(*whole(b) == 0 ? 1 : base);
  if (base == -1) return Value::integer(*whole(b) % 2 == 0 ? 1 : -1);
  Value result = Value::integer(1);
  for (int64_t i = 0; i < *whole(b); ++i) result = multiply(budget, result, a);  // overflows after 63 at most
  return result;
}

Value negate(const Value& a) {
  if (const auto integer = whole(a)) {
    if (*integer == INT64_MIN) fail_overflow();
    return Value::integer(-*integer);
  }
  if (const auto number = real(a)) return Value::number(-*number);
  require_defined(a);
  throw TemplateError(std::string("a value of type ") + a.type_name() + " cannot be negated");
}

namespace {

std::string owner_of(const Value& subject) { return std::string("'") + subject.type_name() + " object'"; }

std::optional<Value> of_loop(Budget& budget, const Value& subject, const std::string& name) {
  Loop& loop = *subject.as_loop();
  const auto count = static_cast<int64_t>(loop.items->items.size());
  const auto index = static_cast<int64_t>(loop.index);
  if (name == "index") return Value::integer(index + 1);
  if (name == "index0") return Value::integer(index);
  if (name == "revindex") return Value::integer(count - index);
  if (name == "revindex0") return Value::integer(count - index - 1);
  if (name == "first") return Value::flag(index == 0);
  if (name == "last") return Value::flag(index == count - 1);
  if (name == "length") return Value::integer(count);
  if (name == "depth") return Value::integer(1);
  if (name == "depth0") return Value::integer(0);
  if (name == "previtem" && index > 0) return loop.items->items[loop.index - 1];
  if (name == "nextitem" && index + 1 < count) return loop.items->items[loop.index + 1];
  if (name == "previtem" || name == "nextitem") return Value::undefined("there is no " + name + " item");
  if (name == "cycle") {
    return Value::function("loop.cycle", [index = loop.index](Budget&, const Arguments& given) {
      if (given.positional.empty()) throw TemplateError("loop.cycle needs values");
      return given.positional[index % given.positional.size()];
    });
  }
  if (name == "changed") {
    return Value::function("loop.changed", [subject](Budget& spent, const Arguments& given) {
      Values& last = subject.as_loop()->last_seen;
      for (const Value& value : given.positional) {  // a loop would hold itself
        if (value.depth() >= kMostDepth) throw TemplateError("loop.changed cannot keep functions, loops or namespaces");
      }
      const bool same = std::equal(last.begin(), last.end(), given.positional.begin(), given.positional.end(),
                                   [&](const Value& a, const Value& b) { return equal(a, b, spent); });
      if (!same) last = given.positional;
      return Value::flag(!same);
    });
  }
  budget.spend();
  return std::nullopt;
}

std::optional<Value> member(Budget& budget, const Value& subject, const std::string& name) {
  if (const Dict* dict = subject.as_dict()) {
    budget.spend(dict->members.size() / 4);
    if (const Value* found = dict->find(name)) return *found;
  }
  if (const Namespace* space = subject.as_namespace()) {
    for (const auto& [key, value] : space->attributes) {
      if (key == name) return value;
    }
  }
  return std::nullopt;
}

/// Where `index` lies in a sequence of so many, counted from its end if negative.
std::optional<size_t> position(int64_t index, size_t count) {
  const int64_t place = index < 0 ? index + static_cast<int64_t>(count) : index;
  if (place < 0 || place >= static_cast<int64_t>(count)) return std::nullopt;
  return static_cast<size_t>(place);
}

/// The characters of a text, each as it begins, and the end.
std::vector<size_t> characters_of(const std::string& text, Budget& budget) {
  budget.build(8 * text.size());
  std::vector<size_t> begins;
  for (size_t at = 0; at < text.size(); at += unicode::length(text[at])) begins.push_back(at);
  begins.push_back(text.size());
  return begins;
}

}  // namespace

Value attribute(Budget& budget, const Value& subject, const std::string& name) {
  budget.spend(name.size() / 16);
  require_defined(subject);
  if (subject.as_loop()) {
    if (auto found = of_loop(budget, subject, name)) return *found;
  }
  if (auto found = method(subject, name)) return *found;
  if (auto found = member(budget, subject, name)) return *found;
  return Value::undefined(owner_of(subject) + " has no attribute '" + name + "'");
}

Value item(Budget& budget, const Value& subject, const Value& key) {
  spend_on(budget, key);
  require_defined(subject);
  if (key.is_undefined() || key.depth() > 0) return Value::undefined(owner_of(subject) + " has no such element");
  if (const auto index = whole(key); index && !subject.as_dict()) {
    if (const List* list = subject.as_list()) {
      const auto place = position(*index, list->items.size());
      if (place) return list->items[*place];
    } else if (const std::string* text = subject.as_text()) {
      const std::vector<size_t> begins = characters_of(*text, budget);
      const auto place = position(*index, begins.size() - 1);
      if (place) return Value::text(text->substr(begins[*place], begins[*place + 1] - begins[*place]), budget);
    }
    return Value::undefined(owner_of(subject) + " has no element " + std::to_string(*index));
  }
  if (const Dict* dict = subject.as_dict()) {
    if (const Value* found = dict->find(key, budget)) return *found;
  }
  if (key.as_text()) return attribute(budget, subject, *key.as_text());
  return Value::undefined(owner_of(subject) + " has no element " + repr(key, budget));
}

Value slice(Budget& budget, const Value& subject, const Value& begin, const Value& end, const Value& step) {
  require_defined(subject);
  const std::string* text = subject.as_text();
  if (!text && !subject.as_list()) throw TemplateError(std::string("a ") + subject.type_name() + " cannot be sliced");
  const std::vector<size_t> begins = text ? characters_of(*text, budget) : std::vector<size_t>();
  const auto count = static_cast<int64_t>(text ? begins.size() - 1 : subject.as_list()->items.size());
  const auto number = [](const Value& given) -> std::optional<int64_t> {
    if (given.is_none()) return std::nullopt;
    require_defined(given);
    const auto found = whole(given);
    if (!found) throw TemplateError(std::string("the parts of a slice must be integers, not a ") + given.type_name());
    return *found;
  };
  const int64_t stride = std::clamp<int64_t>(number(step).value_or(1), -count - 1, count + 1);
  if (stride == 0) throw TemplateError("the step of a slice cannot be 0");
  const int64_t least = stride > 0 ? 0 : -1;
  const int64_t most = stride > 0 ? count : count - 1;
  const auto bound = [&](const Value& given, int64_t otherwise) {
    const auto found = number(given);
    if (!found) return otherwise;
    return std::clamp(*found < 0 ? *found + count : *found, least, most);
  };
  const int64_t from = bound(begin, stride > 0 ? 0 : count - 1);
  const int64_t to = bound(end, stride > 0 ? count : -1);
  std::string characters;
  Values items;
  for (int64_t i = from; stride > 0 ? i < to : i > to; i += stride) {
    const auto place = static_cast<size_t>(i);
    if (text) {
      characters.append(*text, begins[place], begins[place + 1] - begins[place]);
    } else {
      items.push_back(subject.as_list()->items[place]);
    }
  }
  if (text) return Value::text(std::move(characters), budget);
  return Value::list(std::move(items), budget, subject.as_list()->is_tuple);
}

}  // namespace trainrun::jinja
