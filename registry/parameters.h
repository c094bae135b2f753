#pragma once

#include <nlohmann/json.hpp>

#include <concepts>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "registry/codec.h"

namespace trainrun {

/// The limits of a numeric parameter; of each element where it is a list of numbers.
struct Range {
  std::optional<double> minimum;
  std::optional<double> maximum;
  bool above_minimum = false;  // the minimum itself is out
  bool below_maximum = false;  // the maximum itself is out

  bool contains(double number) const;
  /// ">= 1", "> 0 and < 1"; "" when there are no limits.
  std::string to_string() const;
};

/// What a component (or a section of the recipe) says of one parameter.
struct Parameter {
  std::string name;
  std::string type;  // "integer", "number or [h, w]", …
  std::string unit;  // "seconds"; "" for none
  std::string doc;   // one line
  bool required = false;
  nlohmann::json default_value;  // null when required, or when the default is null
  Range range;
  std::vector<std::string> choices;
  bool open_choices = false;                             // any other string will do as well
  std::string if_empty;                                  // what is wrong with an empty list or string; "" for nothing
  std::function<nlohmann::json(SchemaContext&)> schema;  // without default and description
};

/// Says, after a component's parameters were read one by one, that some do not fit together.
class Checker {
 public:
  Checker(const Value& component, Reader& reader) : component_(component), reader_(reader) {}
  /// A fault of `parameter` (or of the whole component where it is not written).
  void fail(const std::string& parameter, const std::string& message);

 private:
  const Value& component_;
  Reader& reader_;
};

/// A section or component with `void check(Checker&) const`.
template <class T>
concept Checked = requires(const T& t, Checker& checker) { t.check(checker); };

/// One declared parameter of T: its description and how it is read into T.
template <class T>
class FieldOf {
 public:
  Parameter parameter;
  std::function<void(T&, const Value&, Reader&)> read;
};

/// Refines the parameter just declared.
template <class F>
class FieldBuilder {
 public:
  explicit FieldBuilder(Parameter& parameter) : parameter_(parameter) {}
  FieldBuilder& at_least(double minimum) { return parameter_.range.minimum = minimum, *this; }
  FieldBuilder& at_most(double maximum) { return parameter_.range.maximum = maximum, *this; }
  FieldBuilder& greater_than(double minimum) { return parameter_.range.above_minimum = true, at_least(minimum); }
  FieldBuilder& less_than(double maximum) { return parameter_.range.below_maximum = true, at_most(maximum); }
  FieldBuilder& one_of(std::vector<std::string> choices) { return parameter_.choices = std::move(choices), *this; }
  /// Words with a meaning of their own, where any other string (a path, say) may stand as well.
  FieldBuilder& words(std::vector<std::string> words) {
    return parameter_.open_choices = true, one_of(std::move(words));
  }
  /// Of a list (not of lists in it) or a string; `message` says what is wrong with an empty one.
  FieldBuilder& not_empty(std::string message) { return parameter_.if_empty = std::move(message), *this; }
  FieldBuilder& unit(std::string unit) { return parameter_.unit = std::move(unit), *this; }
  FieldBuilder& doc(std::string doc) { return parameter_.doc = std::move(doc), *this; }

 private:
  Parameter& parameter_;
};

/// Collects the parameters of T as `T::describe(Fields<T>&)` declares them; then reads a T from a recipe.
template <class T>
class Fields {
 public:
  /// Declares all of T's parameters.
  Fields() { T::describe(*this); }

  /// A member of T or of a base of T.
  template <class F, class Base>
  FieldBuilder<F> required(std::string name, F Base::* member) {
    return add<F>(std::move(name), member, true);
  }
  /// The default is the member's initialiser.
  template <class F, class Base>
  FieldBuilder<F> optional(std::string name, F Base::* member) {
    return add<F>(std::move(name), member, false);
  }

  /// What JSON Schema can say of T's `check`: a schema for the whole mapping. For editors; reading does not use it.
  void relation(nlohmann::json schema) { relations_.push_back(std::move(schema)); }

  /// Reads `map` into a T; what is wrong goes to `reader`. Keys in `known_elsewhere` are left alone, others refused:
  /// `owner`
  /// ("Conv2d", "training") says in the message whose parameters they would be.
  T read(const Value& map, Reader& reader, const std::string& owner,
         const std::vector<std::string>& known_elsewhere = {}) const;

  std::vector<Parameter> parameters() const;
  const std::vector<nlohmann::json>& relations() const { return relations_; }
  /// {"type": "object", "properties": …, "additionalProperties": false, "required": …, "allOf": relations}
  nlohmann::json schema(SchemaContext& context) const;

 private:
  template <class F>
  FieldBuilder<F> add(std::string name, F T::* member, bool required);

  std::deque<FieldOf<T>> fields_;  // a deque: builders point into it
  std::vector<nlohmann::json> relations_;
};

namespace detail {

/// Reports `text` where the parameter has choices and it is none of them.
void check_choice(const std::string& text, const Parameter& parameter, const Place& place, Reader& reader);
/// Reports `value` where it is empty and the parameter may not be.
void check_not_empty(const Value& value, const Parameter& parameter, Reader& reader);
/// "expected a mapping, found 'lr:0.1'; is there no space after the colon?"
std::string no_mapping(const Value& value);

/// Reads one parameter: range, choices and emptiness are checked here, once, for every type.
template <class F>
std::optional<F> read_parameter(const Parameter& parameter, const Value& value, Reader& reader) {
  const Value spelled = spelled_as_choice(value, parameter.choices);
  const size_t before = reader.problems().size();
  if constexpr (HasChoice<F>) {
    if (spelled.is_scalar() && spelled.scalar_type() == ScalarType::kString) {
      check_choice(spelled.text(), parameter, value.place(), reader);
      if (reader.problems().size() != before) return std::nullopt;
    }
  }
  std::optional<F> result = Codec<F>::read(spelled, reader);
  if (!result || reader.problems().size() != before) return std::nullopt;
  check_not_empty(value, parameter, reader);
  for_each_number(*result, [&](double number) {
    if (!parameter.range.contains(number)) {
      reader.error(value.place(), "must be " + parameter.range.to_string() + ", is " + number_text(number));
    }
  });
  if (!parameter.open_choices) {
    for_each_string(*result, [&](const std::string& text) { check_choice(text, parameter, value.place(), reader); });
  }
  return result;
}

/// `schema`, or a `${…}` in its place or in that of any item of a list.
nlohmann::json or_interpolation(const nlohmann::json& schema);
/// {"type": "object", "properties": …, "additionalProperties": false}: each parameter by itself, with its range,
/// choices, default and documentation.
nlohmann::json properties_schema(const std::vector<Parameter>& parameters, SchemaContext& context);
/// What a mapping must have besides to be whole: {"required": …, "allOf": relations}, or {}.
nlohmann::json whole_schema(const std::vector<Parameter>& parameters, const std::vector<nlohmann::json>& relations);
/// Reports the keys of `map` that are neither parameters nor known elsewhere, and what is required and missing.
void check_keys(const Value& map, const std::vector<const Parameter*>& parameters,
                const std::vector<std::string>& known_elsewhere, const std::string& owner, Reader& reader);

}  // namespace detail

template <class T>
template <class F>
FieldBuilder<F> Fields<T>::add(std::string name, F T::* member, bool required) {
  FieldOf<T>& field = fields_.emplace_back();
  Parameter& parameter = field.parameter;
  parameter.name = std::move(name);
  parameter.required = required;
  parameter.type = Codec<F>::type_name();
  if constexpr (detail::HasChoice<F>) {
    for (const char* word : Words<typename detail::ChoiceIn<F>::Type>::kWords) parameter.choices.emplace_back(word);
  }
  if (!required) parameter.default_value = Codec<F>::write(T{}.*member);
  parameter.schema = [](SchemaContext& context) { return Codec<F>::schema(context); };
  field.read = [member, &parameter](T& target, const Value& value, Reader& reader) {
    if (auto result = detail::read_parameter<F>(parameter, value, reader)) target.*member = std::move(*result);
  };
  return FieldBuilder<F>(parameter);
}

template <class T>
T Fields<T>::read(const Value& map, Reader& reader, const std::string& owner,
                  const std::vector<std::string>& known_elsewhere) const {
  std::vector<const Parameter*> known;
  for (const FieldOf<T>& field : fields_) known.push_back(&field.parameter);
  const size_t before = reader.problems().size();
  detail::check_keys(map, known, known_elsewhere, owner, reader);
  T result{};
  for (const FieldOf<T>& field : fields_) {
    const Value* value = map.find(field.parameter.name);
    if (!value) continue;
    const auto scope = reader.enter(field.parameter.name);
    field.read(result, *value, reader);
  }
  if constexpr (Checked<T>) {
    if (reader.problems().size() == before) {
      Checker checker(map, reader);
      result.check(checker);
    }
  }
  return result;
}

template <class T>
std::vector<Parameter> Fields<T>::parameters() const {
  std::vector<Parameter> result;
  for (const FieldOf<T>& field : fields_) result.push_back(field.parameter);
  return result;
}

template <class T>
nlohmann::json Fields<T>::schema(SchemaContext& context) const {
  nlohmann::json schema = detail::properties_schema(parameters(), context);
  schema.update(detail::whole_schema(parameters(), relations_));
  return schema;
}

/// A part of the recipe that is a plain mapping: anything with `describe` and no `build`.
template <class T>
concept Section = requires(Fields<T>& fields) { T::describe(fields); };

/// Sections nest: `training: {num_epochs: 8}`.
template <Section T>
struct Codec<T> {
  static const Fields<T>& fields() {
    static const Fields<T> fields;
    return fields;
  }
  static std::optional<T> read(const Value& value, Reader& reader) {
    if (!value.is_map()) {
      reader.error(value.place(), detail::no_mapping(value));
      return std::nullopt;
    }
    return fields().read(value, reader, std::string(reader.path()));
  }
  static nlohmann::json schema(SchemaContext& context) { return fields().schema(context); }
  static nlohmann::json write(const T&) { return nlohmann::json::object(); }
  static std::string type_name() { return "mapping"; }
};

}  // namespace trainrun
