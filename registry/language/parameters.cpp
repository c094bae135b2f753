#include "registry/language/parameters.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "registry/language/hints.h"

namespace trainrun {
namespace {

using nlohmann::json;

bool has(const std::vector<std::string>& words, const std::string& word) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

/// The choice that means "no" ('no' as mixed_precision has it, 'NO' as distributed_type has it), or "".
std::string no_choice(const std::vector<std::string>& choices) {
  for (const char* no : {"no", "NO"}) {
    if (has(choices, no)) return no;
  }
  return "";
}

/// Whether two places are in different files: a base, an overlay, the command line.
bool is_elsewhere(const Place& a, const Place& b) { return a.file && b.file && *a.file != *b.file; }

/// The words that may stand where `parameter` has choices, with the other spellings of 'no'.
json words_schema(const Parameter& parameter) {
  json words = parameter.choices;
  const std::string no = no_choice(parameter.choices);
  if (no.empty()) return {{"type", "string"}, {"enum", words}};
  for (const char* spelling : {"no", "off", "NO", "Off", "No", "OFF"}) {
    if (spelling != no) words.push_back(spelling);
  }
  words.push_back(false);
  return {{"enum", words}};
}

/// 1 for 1.0, as error messages write it too.
json spelled_short(double number) {
  constexpr double kExact = 1LL << 53;
  const bool whole = std::floor(number) == number && std::abs(number) < kExact;
  return whole ? json(static_cast<int64_t>(number)) : json(number);
}

json refined(const json& schema, const Parameter& parameter);

/// Whether values of other types than its own pass `schema`'s keywords but for "type", so that it can be one with
/// others.
bool is_plain(const json& schema) {
  return schema.contains("type") && !schema.contains("enum") && !schema.contains("anyOf") && !schema.contains("if") &&
         !schema.contains("not") && !schema.contains("properties");
}

json types_of(const json& schema) { return schema["type"].is_array() ? schema["type"] : json::array({schema["type"]}); }

bool has_type(const json& schema, const json& type) {
  if (!schema.contains("type")) return false;
  const json types = types_of(schema);
  return std::find(types.begin(), types.end(), type) != types.end();
}

/// Makes `other` part of `plain`, {"type": ["integer", "null"], "minimum": 1}; false where a keyword has two meanings.
bool join_plain(json& plain, const json& other) {
  for (const auto& [key, value] : other.items()) {
    if (key != "type" && plain.contains(key) && plain[key] != value) return false;
  }
  json types = types_of(plain);
  for (const json& type : types_of(other)) {
    if (!has_type(plain, type)) types.push_back(type);
  }
  plain.update(other);
  plain["type"] = types;
  return true;
}

/// The two alternatives, of which one is looked at for values of its type alone; nothing where they share that.
std::optional<json> one_or_other(const json& first, const json& second) {
  for (const char* type : {"array", "object", "string", "null"}) {
    for (const auto& [one, other] : {std::pair(first, second), std::pair(second, first)}) {
      const bool is_component =
          other.contains("$ref") && (type == std::string("object") || type == std::string("string"));
      if (one.value("type", json()) != type || has_type(other, type) || is_component || other.contains("enum"))
        continue;
      return json{{"if", {{"type", type}}}, {"then", one}, {"else", other}};
    }
  }
  return std::nullopt;
}

/// Any of the `alternatives`, so put that a validator's message is about those of the value's own type.
json by_type(const json& alternatives) {
  json plain;
  json all = json::array();
  for (const json& one : alternatives) {
    const bool joined = is_plain(one) && (plain.is_null() ? (plain = one, true) : join_plain(plain, one));
    if (!joined) all.push_back(one);
  }
  if (!plain.is_null()) all.insert(all.begin(), plain);
  if (all.size() == 1) return all[0];
  if (all.size() == 2) {
    if (const auto chosen = one_or_other(all[0], all[1])) return *chosen;
  }
  return {{"anyOf", all}};
}

/// Adds `schema`, or each of those it is any of, to `alternatives`: with the range on every number, the choices for
/// every string.
void add_alternatives(const json& schema, const Parameter& parameter, json& alternatives) {
  if (schema.contains("anyOf")) {
    for (const json& one : schema["anyOf"]) add_alternatives(one, parameter, alternatives);
    return;
  }
  json one = schema;
  const json type = schema.value("type", json());
  if (schema.contains("items")) {
    Parameter item = parameter;
    item.if_empty.clear();
    one["items"] = refined(schema["items"], item);
  }
  if (type == "integer" || type == "number") {
    const Range& range = parameter.range;
    if (range.minimum) one[range.above_minimum ? "exclusiveMinimum" : "minimum"] = spelled_short(*range.minimum);
    if (range.maximum) one[range.below_maximum ? "exclusiveMaximum" : "maximum"] = spelled_short(*range.maximum);
  }
  if (!parameter.if_empty.empty() && type == "array") one["minItems"] = 1;
  if (!parameter.if_empty.empty() && type == "string") one["minLength"] = 1;
  const bool has_words = type == "string" && !parameter.choices.empty() && !schema.contains("pattern");
  if (has_words) alternatives.push_back(words_schema(parameter));
  if (!has_words || parameter.open_choices) alternatives.push_back(one);
}

/// `schema` with the parameter's range and choices, and `${…}` wherever a value may stand.
json refined(const json& schema, const Parameter& parameter) {
  json alternatives = json::array();
  add_alternatives(schema, parameter, alternatives);
  const auto takes_any_text = [](const json& one) {  // a component says itself that it may be a `${…}`
    const bool limited = one.contains("enum") || one.contains("pattern");
    return one.contains("$ref") || (one.value("type", json()) == "string" && !limited);
  };
  const bool wants_reference = std::none_of(alternatives.begin(), alternatives.end(), takes_any_text);
  const auto has_words = [](const json& one) { return one.contains("enum"); };
  const bool text = std::any_of(alternatives.begin(), alternatives.end(), has_words);
  json own = by_type(alternatives);
  if (!wants_reference) return own;
  return {{"if", {{"$ref", text ? "#/definitions/interpolated_text" : "#/definitions/interpolation"}}}, {"else", own}};
}

}  // namespace

bool Range::contains(double number) const {
  if (minimum && (above_minimum ? number <= *minimum : number < *minimum)) return false;
  if (maximum && (below_maximum ? number >= *maximum : number > *maximum)) return false;
  return true;
}

std::string Range::to_string() const {
  if (minimum && maximum && *minimum == *maximum) return detail::number_text(*minimum);
  std::string text;
  if (minimum) text += (above_minimum ? "> " : ">= ") + detail::number_text(*minimum);
  if (minimum && maximum) text += " and ";
  if (maximum) text += (below_maximum ? "< " : "<= ") + detail::number_text(*maximum);
  return text;
}

FieldBuilder& FieldBuilder::at_least(double minimum) { return parameter_.range.minimum = minimum, *this; }

FieldBuilder& FieldBuilder::at_most(double maximum) { return parameter_.range.maximum = maximum, *this; }

FieldBuilder& FieldBuilder::greater_than(double minimum) {
  return parameter_.range.above_minimum = true, at_least(minimum);
}

FieldBuilder& FieldBuilder::less_than(double maximum) {
  return parameter_.range.below_maximum = true, at_most(maximum);
}

FieldBuilder& FieldBuilder::one_of(std::initializer_list<std::string_view> choices) {
  return parameter_.choices.assign(choices.begin(), choices.end()), *this;
}

FieldBuilder& FieldBuilder::one_of(std::vector<std::string> choices) {
  return parameter_.choices = std::move(choices), *this;
}

FieldBuilder& FieldBuilder::words(std::initializer_list<std::string_view> words) {
  return parameter_.open_choices = true, one_of(words);
}

FieldBuilder& FieldBuilder::not_empty(std::string_view message) { return parameter_.if_empty = message, *this; }

FieldBuilder& FieldBuilder::unit(std::string_view unit) { return parameter_.unit = unit, *this; }

FieldBuilder& FieldBuilder::doc(std::string_view doc) { return parameter_.doc = doc, *this; }

std::vector<Parameter> FieldList::parameters() const {
  std::vector<Parameter> result;
  for (const Field& field : fields_) result.push_back(field.parameter);
  return result;
}

json FieldList::write(const void* component) const {
  json result = json::object();
  for (const Field& field : fields_) {
    result[field.parameter.name] = field.write(static_cast<const char*>(component) + field.offset);
  }
  return result;
}

const Field& FieldList::field_of(const std::string& parameter) const {
  const auto has_name = [&](const Field& field) { return field.parameter.name == parameter; };
  const auto found = std::find_if(fields_.begin(), fields_.end(), has_name);
  if (found == fields_.end()) throw std::logic_error("a rule is about '" + parameter + "', which is not declared");
  return *found;
}

void FieldList::rule(Rule rule) {
  relations_.push_back(
      rule.schema([&](const std::string& parameter) { return field_of(parameter).parameter.default_value; }));
  rules_.push_back(std::move(rule));
}

void FieldList::either(const std::string& one, const std::string& other) {
  const std::string message = "either " + one + " or " + other + " must be given, and not both";
  rule({.any = {the(one).is_given(), the(other).is_given()}, .at = one, .message = message});
  rule({.when = {the(one).is_given()}, .all = {the(other).is_missing()}, .at = other, .message = message});
}

void FieldList::check_rules(const void* component, Checker& checker) const {
  const auto value_of = [&](const std::string& parameter) {
    const Field& field = field_of(parameter);
    return field.write(static_cast<const char*>(component) + field.offset);
  };
  for (const Rule& rule : rules_) {
    if (const std::string fault = rule.fault(value_of); !fault.empty()) checker.fail(rule.at, fault);
  }
}

std::vector<std::string> FieldList::wanted() const {
  std::vector<std::string> wanted;
  for (const Rule& rule : rules_) {
    if (rule.when.empty() && !rule.any.empty()) wanted.push_back(rule.any.front().parameter());
  }
  return wanted;
}

json FieldList::schema(SchemaContext& context) const {
  json schema = detail::properties_schema(parameters(), context);
  schema.update(detail::whole_schema(parameters(), relations_));
  return schema;
}

namespace {

/// Whether the advice to write a list of `value` alone, with which the problems from `before` on end, helps; where it does
/// not, takes it out, and says of a component that there is none of that name.
void try_advice(const Field& field, const Value& value, Reader& reader, size_t before, void* member) {
  std::vector<Problem>& problems = reader.problems();
  if (problems.size() != before + 1) return;
  const size_t advice = problems[before].message.rfind("; write [");
  if (!value.is_scalar() || advice == std::string::npos || problems[before].path != reader.path()) return;
  field.read(field.parameter, Value::list({value}, value.place()), reader, member);
  if (problems.size() == before + 1) return;
  const Problem found = problems[before + 1];
  problems.resize(before + 1);
  problems[before].message.resize(advice);
  if (found.unknown_component) problems[before].message += "; " + found.message;
  problems[before].unknown_component = found.unknown_component;
}

}  // namespace

void FieldList::read_into(void* target, const Value& map, Reader& reader, const std::string& owner,
                          const std::vector<std::string>& known_elsewhere) const {
  std::vector<const Parameter*> known;
  for (const Field& field : fields_) known.push_back(&field.parameter);
  detail::check_keys(map, known, known_elsewhere, owner, reader);
  for (const Field& field : fields_) {
    const Value* value = map.find(field.parameter.name);
    if (!value) continue;
    const auto scope = reader.enter(field.parameter.name);
    const size_t before = reader.problems().size();
    void* const member = static_cast<char*>(target) + field.offset;
    field.read(field.parameter, *value, reader, member);
    try_advice(field, *value, reader, before, member);
  }
}

Parameter& FieldList::add(std::string_view name, std::string type, json (*schema)(SchemaContext&), Field field) {
  field.parameter.name = name;
  field.parameter.type = std::move(type);
  field.parameter.schema = schema;
  return fields_.emplace_back(std::move(field)).parameter;
}

void Checker::fail(const std::string& parameter, const std::string& message) {
  const Value* value = component_.find(parameter);
  const auto scope = reader_.enter(parameter);
  reader_.error(value ? value->place() : component_.place(), message);
}

namespace detail {

Value spelled_as_choice(const Value& value, const std::vector<std::string>& choices) {
  if (choices.empty() || !value.is_scalar() || has(choices, value.text())) return value;
  const std::string no = no_choice(choices);
  for (const char* spelling : {"no", "No", "NO", "off", "Off", "OFF", "false", "False", "FALSE"}) {
    if (!no.empty() && value.text() == spelling) return Value::scalar(no, true, value.place());
  }
  if (value.quoted()) return value;
  const bool word =
      value.scalar_type() == ScalarType::kBool;  // `true` for a choice is a wrong choice, not a wrong type
  return word ? Value::scalar(value.text(), true, value.place()) : value;
}

void check_choice(const std::string& text, const Parameter& parameter, const Place& place, Reader& reader) {
  if (parameter.choices.empty() || has(parameter.choices, text)) return;
  std::vector<std::string> possible = parameter.choices;
  for (const char* other : {"integer", "number", "time", "null"}) {  // what may stand there besides a word
    if (parameter.type.find(other) != std::string::npos) possible.emplace_back(other);
  }
  const std::string same = same_name(text, possible);  // "null" of "never", too
  const std::string near = same.empty() ? nearest(text, parameter.choices) : same;
  reader.error(place,
               "'" + text + "' is not one of " + join(possible) + (near.empty() ? "" : "; did you mean " + near + "?"));
}

void check_not_empty(const Value& value, const Parameter& parameter, Reader& reader) {
  const bool empty_text = value.is_scalar() && value.quoted() && value.text().empty();  // not quoted, it is a null
  if (!parameter.if_empty.empty() && (empty_text || (value.is_list() && value.items().empty())))
    reader.error(value.place(), parameter.if_empty);
}

std::string as_written(const Value& value, double number) {
  constexpr double kLargestExact = 9007199254740992;  // 2^53
  return value.is_scalar() && std::abs(number) > kLargestExact ? value.text() : number_text(number);
}

std::string no_mapping(const Value& value) {
  const bool plain = value.is_scalar() && !value.quoted();
  const size_t colon = plain ? value.text().find(':') : std::string::npos;
  const bool slip = colon != std::string::npos && colon > 0 && colon + 1 < value.text().size();
  return "expected a mapping, found " + value.describe() + (slip ? "; is the space after the colon missing?" : "") +
         mapping_hint(value);
}

json or_interpolation(const json& schema) { return refined(schema, Parameter()); }

json properties_schema(const std::vector<Parameter>& parameters, SchemaContext& context) {
  json properties = json::object();
  for (const Parameter& parameter : parameters) {
    json schema = refined(parameter.schema(context), parameter);
    if (schema.contains("$ref")) schema = {{"anyOf", json::array({schema})}};  // what stands beside a $ref is ignored
    std::string doc = parameter.doc;
    if (!parameter.unit.empty()) doc += " [" + parameter.unit + "]";
    if (!doc.empty()) schema["description"] = doc;
    if (!parameter.required && !parameter.default_value.is_object()) {
      const json& value = parameter.default_value;
      schema["default"] = value.is_number_float() ? spelled_short(value.get<double>()) : value;
    }
    properties[parameter.name] = schema;
  }
  return {{"type", "object"}, {"properties", properties}, {"additionalProperties", false}};
}

json whole_schema(const std::vector<Parameter>& parameters, const std::vector<json>& relations) {
  json schema = json::object();
  for (const Parameter& parameter : parameters) {
    if (parameter.required) schema["required"].push_back(parameter.name);
  }
  if (!relations.empty()) schema["allOf"] = relations;
  return schema;
}

namespace {

/// Whether one of the words is the other and a letter more: "weights", "weight".
bool differs_by_one(const std::string& a, const std::string& b) {
  return (a.starts_with(b) && a.size() == b.size() + 1) || (b.starts_with(a) && b.size() == a.size() + 1);
}

/// What to do about an unknown key: it is a `near` one misspelled, it belongs to another section, it is one that is
/// `given` as well, or it is none of those `known`, which are all listed.
std::string key_hint(const std::string& near, const std::string& elsewhere, const std::string& given,
                     std::vector<std::string> known) {
  if (!elsewhere.empty()) return "; write " + elsewhere + " instead";
  if (!near.empty()) return "; did you mean " + near + "?";
  if (!given.empty()) return "; did you mean " + given + ", which is given as well?";
  std::erase(known, "type");
  return known.empty() ? "; there are none" : "; known: " + join(known);
}

}  // namespace

void check_keys(const Value& map, const std::vector<const Parameter*>& parameters,
                const std::vector<std::string>& known_elsewhere, const std::string& owner, Reader& reader) {
  std::vector<std::string> names;
  for (const Parameter* parameter : parameters) names.push_back(parameter->name);
  std::vector<std::string> all = names;
  all.insert(all.end(), known_elsewhere.begin(), known_elsewhere.end());
  std::vector<std::string> misspelled;
  for (const Value::Entry& entry : map.entries()) {
    if (has(all, entry.key)) continue;
    const auto scope = reader.enter(entry.key);
    std::vector<std::string> unused;
    for (const std::string& name : all) {
      if (!map.find(name)) unused.push_back(name);
    }
    const std::string near = nearest(entry.key, unused);
    const bool is_near = !same_name(entry.key, all).empty() || differs_by_one(entry.key, near);
    const std::string elsewhere = is_near ? "" : place_in_recipe(entry.key, reader.path());
    misspelled.push_back(elsewhere.empty() ? near : "");
    const std::string given = misspelled.back().empty() && elsewhere.empty() ? nearest(entry.key, all) : "";
    std::string whose = owner.empty() ? "unknown key" : "unknown parameter of " + owner;
    std::string merged;
    if (const Value* type = map.find("type"); type && is_elsewhere(type->place(), entry.key_place)) {
      whose += " (its type is from " + type->place().to_string() + ")";
      const bool is_far = misspelled.back().empty() && elsewhere.empty() && given.empty();
      if (is_far) merged = "; to leave out what a base says here, write !replace before the mapping";
    }
    reader.error(entry.key_place, whose + key_hint(misspelled.back(), elsewhere, given, all) + merged);
  }
  for (const Parameter* parameter : parameters) {
    if (!parameter->required || map.find(parameter->name)) continue;
    if (has(misspelled, parameter->name)) continue;  // one fault, one error
    reader.error(map.place(), (owner.empty() ? "" : owner + " needs ") + parameter->name +
                                  (owner.empty() ? " is missing" : "") +
                                  (parameter->doc.empty() ? "" : " (" + parameter->doc + ")"));
  }
}

}  // namespace detail
template FieldBuilder FieldList::declare(std::string_view, std::ptrdiff_t, const bool*);
template FieldBuilder FieldList::declare(std::string_view, std::ptrdiff_t, const int64_t*);
template FieldBuilder FieldList::declare(std::string_view, std::ptrdiff_t, const double*);
template FieldBuilder FieldList::declare(std::string_view, std::ptrdiff_t, const std::string*);
template FieldBuilder FieldList::declare(std::string_view, std::ptrdiff_t, const std::optional<int64_t>*);
template FieldBuilder FieldList::declare(std::string_view, std::ptrdiff_t, const std::optional<double>*);
template FieldBuilder FieldList::declare(std::string_view, std::ptrdiff_t, const std::optional<std::string>*);
template FieldBuilder FieldList::declare(std::string_view, std::ptrdiff_t, const std::vector<int64_t>*);
template FieldBuilder FieldList::declare(std::string_view, std::ptrdiff_t, const std::vector<double>*);
template FieldBuilder FieldList::declare(std::string_view, std::ptrdiff_t, const std::vector<std::string>*);
template FieldBuilder FieldList::declare(std::string_view, std::ptrdiff_t, const Ints<1>*);
template FieldBuilder FieldList::declare(std::string_view, std::ptrdiff_t, const Ints<2>*);
template FieldBuilder FieldList::declare(std::string_view, std::ptrdiff_t, const Ints<3>*);

}  // namespace trainrun
