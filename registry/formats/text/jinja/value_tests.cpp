#include "registry/formats/text/jinja/expression.h"
#include "registry/formats/text/jinja/letters.h"

// The tests of Jinja: what may follow `is`.

namespace trainrun::jinja {
namespace {

using Test = bool (*)(Budget&, const Value&, const Bound&);

struct TestEntry {
  Test holds;
  bool has_argument = false;
};

template <int kRemainder>
bool has_remainder(Budget& budget, const Value& subject, const Bound&) {
  return equal(modulo(budget, subject, Value::integer(2)), Value::integer(kRemainder), budget);
}

std::string letters_of(Budget& budget, const Value& subject) {
  std::string text = str(subject, budget);
  spend_on_letters(budget, text);
  return text;
}

bool is_flag(const Value& subject, bool which) { return subject.as_flag() && *subject.as_flag() == which; }

/// Python's `is`, of what there is but once; others are told apart by their values.
bool is_same(Budget& budget, const Value& a, const Value& b) {
  return std::string(a.type_name()) == b.type_name() && equal(a, b, budget);
}

const std::map<std::string, TestEntry>& tests_of_kind() {
  static const std::map<std::string, TestEntry> all = {
      {"defined", {[](Budget&, const Value& v, const Bound&) { return !v.is_undefined(); }}},
      {"undefined", {[](Budget&, const Value& v, const Bound&) { return v.is_undefined(); }}},
      {"none", {[](Budget&, const Value& v, const Bound&) { return v.is_none(); }}},
      {"boolean", {[](Budget&, const Value& v, const Bound&) { return v.as_flag() != nullptr; }}},
      {"true", {[](Budget&, const Value& v, const Bound&) { return is_flag(v, true); }}},
      {"false", {[](Budget&, const Value& v, const Bound&) { return is_flag(v, false); }}},
      {"integer", {[](Budget&, const Value& v, const Bound&) { return v.as_integer() != nullptr; }}},
      {"float", {[](Budget&, const Value& v, const Bound&) { return v.as_number() != nullptr; }}},
      {"number", {[](Budget&, const Value& v, const Bound&) { return real(v).has_value(); }}},
      {"string", {[](Budget&, const Value& v, const Bound&) { return v.as_text() != nullptr; }}},
      {"mapping", {[](Budget&, const Value& v, const Bound&) { return v.as_dict() != nullptr; }}},
      {"iterable", {[](Budget&, const Value& v, const Bound&) {
         return v.as_text() || v.as_list() || v.as_dict() || v.as_loop() || v.is_undefined();
       }}},
      {"sequence", {[](Budget&, const Value& v, const Bound&) {
         return v.as_text() || v.as_list() || v.as_dict() || v.is_undefined();
       }}},
      {"callable", {[](Budget&, const Value& v, const Bound&) { return v.as_function() != nullptr; }}},
      {"upper", {[](Budget& b, const Value& v, const Bound&) { return is_upper(letters_of(b, v)); }}},
      {"lower", {[](Budget& b, const Value& v, const Bound&) { return is_lower(letters_of(b, v)); }}},
      {"odd", {has_remainder<1>}},
      {"even", {has_remainder<0>}},
      {"filter", {[](Budget& b, const Value& v, const Bound&) { return is_filter(str(v, b)); }}},
      {"test", {[](Budget& b, const Value& v, const Bound&) { return is_test(str(v, b)); }}},
  };
  return all;
}

template <bool (*kHolds)(int)>
bool ordered(Budget& budget, const Value& subject, const Bound& given) {
  return kHolds(compare(subject, given.at(0), budget));
}

bool is_equal(Budget& budget, const Value& subject, const Bound& given) { return equal(subject, given.at(0), budget); }
bool is_unequal(Budget& budget, const Value& subject, const Bound& given) { return !is_equal(budget, subject, given); }
bool below(int order) { return order < 0; }
bool above(int order) { return order > 0; }
bool at_most(int order) { return order <= 0; }
bool at_least(int order) { return order >= 0; }

const std::map<std::string, TestEntry>& tests_of_relation() {
  static const std::map<std::string, TestEntry> all = {
      {"eq", {is_equal, true}},
      {"equalto", {is_equal, true}},
      {"==", {is_equal, true}},
      {"ne", {is_unequal, true}},
      {"!=", {is_unequal, true}},
      {"lt", {ordered<below>, true}},
      {"lessthan", {ordered<below>, true}},
      {"<", {ordered<below>, true}},
      {"gt", {ordered<above>, true}},
      {"greaterthan", {ordered<above>, true}},
      {">", {ordered<above>, true}},
      {"le", {ordered<at_most>, true}},
      {"<=", {ordered<at_most>, true}},
      {"ge", {ordered<at_least>, true}},
      {">=", {ordered<at_least>, true}},
      {"in", {[](Budget& b, const Value& v, const Bound& g) { return contains(g.at(0), v, b); }, true}},
      {"sameas", {[](Budget& b, const Value& v, const Bound& g) { return is_same(b, v, g.at(0)); }, true}},
      {"divisibleby",
       {[](Budget& b, const Value& v, const Bound& g) { return equal(modulo(b, v, g.at(0)), Value::integer(0), b); },
        true}},
  };
  return all;
}

const TestEntry* entry_of(const std::string& name) {
  for (const auto* tests : {&tests_of_kind(), &tests_of_relation()}) {
    const auto found = tests->find(name);
    if (found != tests->end()) return &found->second;
  }
  return nullptr;
}

}  // namespace

bool test(Budget& budget, const std::string& name, const Value& subject, const Arguments& arguments) {
  budget.spend();
  spend_on(budget, subject);
  spend_on(budget, arguments);
  const TestEntry* entry = entry_of(name);
  if (!entry) throw TemplateError("there is no test '" + name + "'");
  const Bound given = entry->has_argument ? Bound(name, arguments, {"other"}, 1) : Bound(name, arguments, {});
  return entry->holds(budget, subject, given);
}

bool is_test(const std::string& name) { return entry_of(name) != nullptr; }

}  // namespace trainrun::jinja
