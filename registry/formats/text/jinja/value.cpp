#include "registry/formats/text/jinja/value.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>

#include "registry/formats/text/jinja/search.h"
#include "registry/formats/text/unicode.h"

namespace trainrun::jinja {

Value Value::text(std::string value, Budget& budget) {
  budget.build(value.size());
  return Value(Text(std::make_shared<const std::string>(std::move(value))));
}

Value Value::safe(std::string value, Budget& budget) {
  budget.build(value.size());
  return Value(Safe{std::make_shared<const std::string>(std::move(value))});
}

namespace {

int depth_above(int inner) {
  if (inner >= kMostDepth) {
    throw TemplateError("lists and dicts may be nested at most 100 deep, and cannot hold functions or namespaces");
  }
  return inner + 1;
}

}  // namespace

Value Value::list(Values items, Budget& budget, bool is_tuple) {
  budget.build(sizeof(Value) * (items.size() + 1));
  int depth = 0;
  for (const Value& item : items) depth = std::max(depth, item.depth());
  return Value(std::make_shared<const List>(List{std::move(items), is_tuple, depth_above(depth)}));
}

Value Value::dict(std::vector<std::pair<Value, Value>> members, Budget& budget) {
  budget.build(2 * sizeof(Value) * (members.size() + 1));
  Dict made;
  for (std::pair<Value, Value>& given : members) {
    made.depth = std::max({made.depth, given.first.depth(), given.second.depth()});
    if (given.first.depth() > 0) throw TemplateError(std::string("a ") + given.first.type_name() + " cannot be a key");
    const auto same = std::find_if(made.members.begin(), made.members.end(),
                                   [&](const auto& member) { return equal(member.first, given.first, budget); });
    if (same != made.members.end()) {
      same->second = std::move(given.second);
    } else {
      made.members.push_back(std::move(given));
    }
  }
  made.depth = depth_above(made.depth);
  return Value(std::make_shared<const Dict>(std::move(made)));
}

Value Value::function(std::string name, std::function<Value(Budget&, const Arguments&)> call) {
  return Value(std::make_shared<const Function>(Function{std::move(name), std::move(call)}));
}

Value Value::from_json(const nlohmann::ordered_json& json, Budget& budget, int depth) {
  if (depth >= kMostDepth) throw TemplateError("the conversation has lists and objects more than 100 deep");
  if (json.is_null()) return none();
  if (json.is_boolean()) return flag(json.get<bool>());
  if (json.is_number_float()) return number(json.get<double>());
  if (json.is_number()) {
    if (json.is_number_unsigned() && json.get<uint64_t>() > static_cast<uint64_t>(INT64_MAX)) {
      throw TemplateError("the conversation has a number beyond 64 bits");
    }
    return integer(json.get<int64_t>());
  }
  if (json.is_string()) return text(json.get<std::string>(), budget);
  if (json.is_array()) {
    Values items;
    for (const auto& item : json) items.push_back(from_json(item, budget, depth + 1));
    return list(std::move(items), budget);
  }
  Dict made;  // the keys of an object differ
  for (const auto& [key, value] : json.items()) {
    made.members.emplace_back(text(key, budget), from_json(value, budget, depth + 1));
    made.depth = std::max(made.depth, made.members.back().second.depth());
  }
  made.depth = depth_above(made.depth);
  return Value(std::make_shared<const Dict>(std::move(made)));
}

int Value::depth() const {
  if (const List* list = as_list()) return list->depth;
  if (const Dict* dict = as_dict()) return dict->depth;
  return as_namespace() || as_loop() || as_function() ? kMostDepth : 0;
}

const char* Value::type_name() const {
  if (const List* list = as_list()) return list->is_tuple ? "tuple" : "list";
  static constexpr const char* kNames[] = {"Undefined", "NoneType", "bool",      "int",         "float",    "str",
                                           "list",      "dict",     "Namespace", "LoopContext", "function", "Markup"};
  return kNames[data_.index()];
}

const Value* Dict::find(const Value& key, Budget& budget) const {
  if (key.depth() > 0) throw TemplateError(std::string("a ") + key.type_name() + " cannot be a key");
  for (const auto& [name, value] : members) {
    if (equal(name, key, budget)) return &value;
  }
  return nullptr;
}

const Value* Dict::find(std::string_view key) const {
  for (const auto& [name, value] : members) {
    if (name.as_text() && *name.as_text() == key) return &value;
  }
  return nullptr;
}

void spend_on(Budget& budget, const Value& value) {
  if (const std::string* text = value.as_text()) budget.spend(text->size() / 16);
}

void spend_on(Budget& budget, const Arguments& arguments) {
  for (const Value& value : arguments.positional) spend_on(budget, value);
  for (const auto& [name, value] : arguments.named) spend_on(budget, value);
}

Bound::Bound(const std::string& function, const Arguments& arguments, std::initializer_list<const char*> parameters,
             size_t required)
    : function_(function), values_(parameters.size(), nullptr) {
  if (arguments.positional.size() > values_.size()) {
    throw TemplateError(function + " takes at most " + std::to_string(values_.size()) + " arguments, not " +
                        std::to_string(arguments.positional.size()));
  }
  for (size_t i = 0; i < arguments.positional.size(); ++i) values_[i] = &arguments.positional[i];
  for (const auto& [name, value] : arguments.named) {
    const auto found = std::find(parameters.begin(), parameters.end(), name);
    if (found == parameters.end()) throw TemplateError(function + " has no parameter '" + name + "'");
    const Value*& place = values_[static_cast<size_t>(found - parameters.begin())];
    if (place) throw TemplateError(function + " is given '" + name + "' twice");
    place = &value;
  }
  for (size_t i = 0; i < required; ++i) {
    if (!values_[i]) throw TemplateError(function + " needs '" + parameters.begin()[i] + "'");
  }
}

void Bound::expected(size_t i, const char* what) const {
  require_defined(at(i));
  throw TemplateError(function_ + " expects " + what + ", not a value of type " + at(i).type_name());
}

std::string Bound::text(size_t i, const std::string& otherwise) const {
  if (!values_[i]) return otherwise;
  if (!at(i).as_text()) expected(i, "a text");
  return *at(i).as_text();
}

int64_t Bound::integer(size_t i, int64_t otherwise) const {
  if (!values_[i]) return otherwise;
  const auto found = whole(at(i));
  if (!found) expected(i, "an integer");
  return *found;
}

bool Bound::flag(size_t i, bool otherwise) const { return values_[i] ? is_true(at(i)) : otherwise; }

void require_defined(const Value& value) {
  if (value.is_undefined()) throw TemplateError(value.as_undefined()->reason);
}

bool is_true(const Value& value) {
  if (value.is_undefined() || value.is_none()) return false;
  if (const auto number = real(value)) return *number != 0;
  if (const std::string* text = value.as_text()) return !text->empty();
  if (const List* list = value.as_list()) return !list->items.empty();
  if (const Dict* dict = value.as_dict()) return !dict->members.empty();
  return true;
}

std::optional<int64_t> whole(const Value& value) {
  if (const bool* flag = value.as_flag()) return *flag ? 1 : 0;
  if (const int64_t* integer = value.as_integer()) return *integer;
  return std::nullopt;
}

std::optional<double> real(const Value& value) {
  if (const double* number = value.as_number()) return *number;
  if (const auto integer = whole(value)) return static_cast<double>(*integer);
  return std::nullopt;
}

bool equal(const Value& a, const Value& b, Budget& budget) {
  budget.spend();
  if (const auto x = whole(a), y = whole(b); x && y) return *x == *y;
  if (const auto x = real(a), y = real(b); x && y) return *x == *y;
  if (a.as_text() && b.as_text()) {
    budget.spend(std::min(a.as_text()->size(), b.as_text()->size()) / 64);
    return *a.as_text() == *b.as_text();
  }
  if (a.as_list() && b.as_list()) {
    const List &left = *a.as_list(), &right = *b.as_list();
    return left.is_tuple == right.is_tuple &&
           std::equal(left.items.begin(), left.items.end(), right.items.begin(), right.items.end(),
                      [&](const Value& x, const Value& y) { return equal(x, y, budget); });
  }
  if (a.as_dict() && b.as_dict()) {
    const Dict &left = *a.as_dict(), &right = *b.as_dict();
    if (left.members.size() != right.members.size()) return false;
    return std::all_of(left.members.begin(), left.members.end(), [&](const auto& member) {
      const Value* other = right.find(member.first, budget);
      return other && equal(member.second, *other, budget);
    });
  }
  if (a.is_undefined() || a.is_none()) return a.is_undefined() ? b.is_undefined() : b.is_none();
  if (a.as_namespace()) return a.as_namespace() == b.as_namespace();
  if (a.as_function()) return a.as_function() == b.as_function();
  return a.as_loop() && a.as_loop() == b.as_loop();
}

int compare(const Value& a, const Value& b, Budget& budget) {
  require_defined(a);
  require_defined(b);
  const auto sign = [](const auto& x, const auto& y) { return x < y ? -1 : (y < x ? 1 : 0); };
  budget.spend();
  if (const auto x = whole(a), y = whole(b); x && y) return sign(*x, *y);
  if (const auto x = real(a), y = real(b); x && y) return sign(*x, *y);
  if (a.as_text() && b.as_text()) {
    budget.spend(std::min(a.as_text()->size(), b.as_text()->size()) / 64);
    return sign(*a.as_text(), *b.as_text());
  }
  if (a.as_list() && b.as_list() && a.as_list()->is_tuple == b.as_list()->is_tuple) {
    const Values &left = a.as_list()->items, &right = b.as_list()->items;
    for (size_t i = 0; i < std::min(left.size(), right.size()); ++i) {
      if (!equal(left[i], right[i], budget)) return compare(left[i], right[i], budget);
    }
    return sign(left.size(), right.size());
  }
  throw TemplateError(std::string("a ") + a.type_name() + " and a " + b.type_name() + " have no order");
}

bool contains(const Value& container, const Value& item, Budget& budget) {
  if (const std::string* text = container.as_text()) {
    if (!item.as_text()) {
      throw TemplateError(std::string("'in' a text needs a text on its left, not a value of type ") + item.type_name());
    }
    spend_on(budget, container);
    return find_text(*text, *item.as_text()) != std::string::npos;
  }
  if (const Dict* dict = container.as_dict()) return dict->find(item, budget) != nullptr;
  if (const List* list = container.as_list()) {
    return std::any_of(list->items.begin(), list->items.end(),
                       [&](const Value& each) { return equal(each, item, budget); });
  }
  if (container.is_undefined()) return false;
  throw TemplateError(std::string("'in' cannot be used with a value of type ") + container.type_name());
}

Value iterated(const Value& value, Budget& budget) {
  if (value.as_list()) return value;
  Values items;
  if (const Dict* dict = value.as_dict()) {
    for (const auto& [key, unused] : dict->members) items.push_back(key);
  } else if (const std::string* text = value.as_text()) {
    budget.build(text->size() * sizeof(Value));
    for (size_t at = 0; at < text->size();) {
      const size_t length = unicode::length((*text)[at]);
      items.push_back(Value::text(text->substr(at, length), budget));
      at += length;
    }
  } else if (!value.is_undefined()) {
    throw TemplateError(std::string("a value of type ") + value.type_name() + " cannot be iterated over");
  }
  return Value::list(std::move(items), budget);
}

int64_t length_of(const Value& value) {
  if (const std::string* text = value.as_text()) return static_cast<int64_t>(unicode::count(*text));
  if (const List* list = value.as_list()) return static_cast<int64_t>(list->items.size());
  if (const Dict* dict = value.as_dict()) return static_cast<int64_t>(dict->members.size());
  if (value.is_undefined()) return 0;
  throw TemplateError(std::string("a value of type ") + value.type_name() + " has no length");
}

}  // namespace trainrun::jinja
