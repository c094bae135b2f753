#include "registry/formats/text/jinja/list_filters.h"

#include <algorithm>

#include "registry/formats/text/jinja/expression.h"
#include "registry/formats/text/jinja/letters.h"
#include "registry/formats/text/unicode.h"

namespace trainrun::jinja {
namespace {

/// "a.b.0" of an element.
Value looked_up(Budget& budget, Value element, const Value& path) {
  if (const auto index = whole(path)) return item(budget, element, path);
  if (!path.as_text()) throw TemplateError("an attribute is named by a text or an integer");
  std::string_view rest = *path.as_text();
  while (true) {
    const size_t dot = rest.find('.');
    const std::string name(rest.substr(0, dot));
    const bool is_index =
        !name.empty() && name.size() < 10 && name.find_first_not_of("0123456789") == std::string::npos;
    element = item(budget, element, is_index ? Value::integer(std::stoll(name)) : Value::text(name, budget));
    if (dot == std::string_view::npos) return element;
    rest.remove_prefix(dot + 1);
  }
}

/// What an element is compared by.
Value key_of(Budget& budget, const Value& element, const Value* path, bool case_sensitive) {
  Value key = path && !path->is_none() ? looked_up(budget, element, *path) : element;
  if (case_sensitive || !key.as_text()) return key;
  spend_on_letters(budget, *key.as_text());
  return Value::text(lower(*key.as_text()), budget);
}

Value to_list(Budget& budget, const Value& subject, const Arguments& given) {
  const Bound none("list", given, {});
  return Value::list(iterated(subject, budget).as_list()->items, budget);
}

template <bool kLast>
Value end_of(Budget& budget, const Value& subject, const Arguments& given) {
  const Bound none(kLast ? "last" : "first", given, {});
  const Value all = iterated(subject, budget);
  const Values& items = all.as_list()->items;
  if (items.empty()) return Value::undefined(std::string("there is no ") + (kLast ? "last" : "first") + " item");
  return kLast ? items.back() : items.front();
}

Value join(Budget& budget, const Value& subject, const Arguments& given) {
  const Bound bound("join", given, {"d", "attribute"});
  const std::string between = bound[0] ? str(bound.at(0), budget) : "";
  const Value all = iterated(subject, budget);
  std::string made;
  bool first = true;
  for (const Value& element : all.as_list()->items) {
    const bool by_attribute = bound[1] && !bound.at(1).is_none();
    const std::string text = str(by_attribute ? looked_up(budget, element, bound.at(1)) : element, budget);
    budget.build(between.size() + text.size());
    if (!first) made += between;
    made += text;
    first = false;
  }
  return Value::text(std::move(made), budget);
}

Value reversed(Budget& budget, const Value& subject, const Arguments& given) {
  const Bound none("reverse", given, {});
  const Value all = iterated(subject, budget);
  Values items(all.as_list()->items.rbegin(), all.as_list()->items.rend());
  if (!subject.as_text()) return Value::list(std::move(items), budget);
  std::string made;
  for (const Value& character : items) made += *character.as_text();
  return Value::text(std::move(made), budget);
}

Value sorted(Budget& budget, const Value& subject, const Arguments& given) {
  const Bound bound("sort", given, {"reverse", "case_sensitive", "attribute"});
  const Value all = iterated(subject, budget);
  std::vector<std::pair<Value, Value>> keyed;
  for (const Value& element : all.as_list()->items) {
    keyed.emplace_back(key_of(budget, element, bound[2], bound.flag(1, false)), element);
  }
  const bool down = bound.flag(0, false);
  std::stable_sort(keyed.begin(), keyed.end(), [&](const auto& a, const auto& b) {
    const Value &left = down ? b.first : a.first, &right = down ? a.first : b.first;
    return !(bound[2] && equal(left, right, budget)) && compare(left, right, budget) < 0;
  });
  Values items;
  for (auto& [key, element] : keyed) items.push_back(std::move(element));
  return Value::list(std::move(items), budget);
}

Value unique(Budget& budget, const Value& subject, const Arguments& given) {
  const Bound bound("unique", given, {"case_sensitive", "attribute"});
  const Value all = iterated(subject, budget);
  Values items, keys;
  for (const Value& element : all.as_list()->items) {
    const Value key = key_of(budget, element, bound[1], bound.flag(0, false));
    if (std::any_of(keys.begin(), keys.end(), [&](const Value& known) { return equal(known, key, budget); })) continue;
    keys.push_back(key);
    items.push_back(element);
  }
  return Value::list(std::move(items), budget);
}

template <bool kMost>
Value extreme(Budget& budget, const Value& subject, const Arguments& given) {
  const Bound bound(kMost ? "max" : "min", given, {"case_sensitive", "attribute"});
  const Value all = iterated(subject, budget);
  const Value* best = nullptr;
  Value best_key;
  for (const Value& element : all.as_list()->items) {
    Value key = key_of(budget, element, bound[1], bound.flag(0, false));
    if (best && (kMost ? compare(key, best_key, budget) <= 0 : compare(key, best_key, budget) >= 0)) continue;
    best = &element;
    best_key = std::move(key);
  }
  return best ? *best : Value::undefined("there is no element");
}

Value sum(Budget& budget, const Value& subject, const Arguments& given) {
  const Bound bound("sum", given, {"attribute", "start"});
  const Value all = iterated(subject, budget);
  Value total = bound[1] ? bound.at(1) : Value::integer(0);
  for (const Value& element : all.as_list()->items) {
    const bool by_attribute = bound[0] && !bound.at(0).is_none();
    total = add(budget, total, by_attribute ? looked_up(budget, element, bound.at(0)) : element);
  }
  return total;
}

Value items_of(Budget& budget, const Value& subject, const Arguments& given) {
  const Bound none("items", given, {});
  if (subject.is_undefined()) return Value::list({}, budget);
  if (!subject.as_dict()) throw TemplateError(std::string("items expects a dict, not a ") + subject.type_name());
  return call(budget, *method(subject, "items"), {});
}

Value sorted_dict(Budget& budget, const Value& subject, const Arguments& given) {
  const Bound bound("dictsort", given, {"case_sensitive", "by", "reverse"});
  const std::string by = bound.text(1, "key");
  if (by != "key" && by != "value") throw TemplateError("dictsort sorts by key or by value");
  Arguments how;
  how.named = {{"reverse", Value::flag(bound.flag(2, false))},
               {"case_sensitive", Value::flag(bound.flag(0, false))},
               {"attribute", Value::integer(by == "key" ? 0 : 1)}};
  return sorted(budget, items_of(budget, subject, {}), how);
}

Value batches(Budget& budget, const Value& subject, const Arguments& given) {
  const Bound bound("batch", given, {"linecount", "fill_with"}, 1);
  const int64_t size = bound.integer(0, 1);
  if (size < 1 || size > 1'000'000) throw TemplateError("batch expects a size from 1 to 1000000");
  const Value all = iterated(subject, budget);
  Values made, current;
  const auto finish = [&] {
    made.push_back(Value::list(std::move(current), budget));
    current.clear();
  };
  for (const Value& element : all.as_list()->items) {
    current.push_back(element);
    if (static_cast<int64_t>(current.size()) == size) finish();
  }
  if (current.empty()) return Value::list(std::move(made), budget);
  const bool fills = bound[1] && !bound.at(1).is_none();
  if (fills) budget.build(static_cast<size_t>(size) * sizeof(Value));
  while (fills && static_cast<int64_t>(current.size()) < size) current.push_back(bound.at(1));
  finish();
  return Value::list(std::move(made), budget);
}

/// The arguments behind the first `count`.
Arguments rest_of(const Arguments& given, size_t count) {
  Arguments rest;
  rest.positional.assign(given.positional.begin() + static_cast<std::ptrdiff_t>(count), given.positional.end());
  rest.named = given.named;
  return rest;
}

std::string name_among(const Arguments& given, size_t i, const char* what) {
  if (given.positional.size() <= i || !given.positional[i].as_text()) {
    throw TemplateError(std::string("expected the name of ") + what);
  }
  return *given.positional[i].as_text();
}

Value mapped(Budget& budget, const Value& subject, const Arguments& given) {
  const Value all = iterated(subject, budget);
  Values items;
  if (given.positional.empty()) {
    const Bound bound("map", given, {"attribute", "default"}, 1);
    for (const Value& element : all.as_list()->items) {
      Value found = looked_up(budget, element, bound.at(0));
      if (found.is_undefined() && bound[1]) found = bound.at(1);
      items.push_back(std::move(found));
    }
  } else {
    const std::string name = name_among(given, 0, "a filter");
    const Arguments rest = rest_of(given, 1);
    for (const Value& element : all.as_list()->items) items.push_back(filter(budget, name, element, rest));
  }
  return Value::list(std::move(items), budget);
}

/// select, reject, selectattr and rejectattr.
template <bool kKeeps, bool kByAttribute>
Value chosen(Budget& budget, const Value& subject, const Arguments& given) {
  constexpr size_t kBefore = kByAttribute ? 1 : 0;
  if (given.positional.size() < kBefore) throw TemplateError("expected the name of an attribute");
  const Value all = iterated(subject, budget);
  const bool has_test = given.positional.size() > kBefore;
  const std::string name = has_test ? name_among(given, kBefore, "a test") : "";
  const Arguments rest = has_test ? rest_of(given, kBefore + 1) : Arguments();
  Values items;
  for (const Value& element : all.as_list()->items) {
    const Value value = kByAttribute ? looked_up(budget, element, given.positional[0]) : element;
    const bool holds = has_test ? test(budget, name, value, rest) : is_true(value);
    if (holds == kKeeps) items.push_back(element);
  }
  return Value::list(std::move(items), budget);
}

}  // namespace

const std::map<std::string, Value (*)(Budget&, const Value&, const Arguments&)>& list_filters() {
  static const std::map<std::string, Value (*)(Budget&, const Value&, const Arguments&)> all = {
      {"list", to_list},
      {"first", end_of<false>},
      {"last", end_of<true>},
      {"join", join},
      {"reverse", reversed},
      {"sort", sorted},
      {"unique", unique},
      {"min", extreme<false>},
      {"max", extreme<true>},
      {"sum", sum},
      {"items", items_of},
      {"dictsort", sorted_dict},
      {"batch", batches},
      {"map", mapped},
      {"select", chosen<true, false>},
      {"reject", chosen<false, false>},
      {"selectattr", chosen<true, true>},
      {"rejectattr", chosen<false, true>},
  };
  return all;
}

}  // namespace trainrun::jinja
