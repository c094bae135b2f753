#pragma once

#include <nlohmann/json.hpp>

#include <concepts>
#include <cstddef>
#include <deque>
#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "registry/language/codec.h"
#include "registry/language/rule.h"

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

/// What a component (or a section of the recipe) declares about one parameter.
struct Parameter {
  std::string name;
  std::string type;  // "integer", "number or [h, w]", …
  std::string unit;  // "seconds"; "" if it has none
  std::string doc;   // one line
  bool required = false;
  nlohmann::json default_value;  // null when required, or when the default is null
  Range range;
  std::vector<std::string> choices;
  bool open_choices = false;                             // any other string will do as well
  std::string if_empty;                                  // what is wrong with an empty list or string; "" for nothing
  std::function<nlohmann::json(SchemaContext&)> schema;  // without default and description
};

/// Collects, after a component's parameters were read one by one, what does not fit together.
class Checker {
 public:
  Checker(const Value& component, Reader& reader) : component_(component), reader_(reader) {}
  /// Reports a fault of `parameter` (or of the whole component, if the parameter is not written).
  void fail(const std::string& parameter, const std::string& message);

 private:
  const Value& component_;
  Reader& reader_;
};

/// A section or component with `void check(Checker&) const`.
template <class T>
concept Checked = requires(const T& t, Checker& checker) { t.check(checker); };

/// One declared parameter: its description, how it is read into a member of a struct, and what the member holds.
struct Field {
  Parameter parameter;
  std::ptrdiff_t offset = 0;  // of the member in the struct
  void (*read)(const Parameter&, const Value&, Reader&, void* member) = nullptr;
  nlohmann::json (*write)(const void* member) = nullptr;
};

/// Refines the parameter just declared.
class FieldBuilder {
 public:
  explicit FieldBuilder(Parameter& parameter) : parameter_(parameter) {}
  FieldBuilder& at_least(double minimum);
  FieldBuilder& at_most(double maximum);
  FieldBuilder& greater_than(double minimum);
  FieldBuilder& less_than(double maximum);
  FieldBuilder& one_of(std::initializer_list<std::string_view> choices);
  FieldBuilder& one_of(std::vector<std::string> choices);
  /// Words with a meaning of their own, besides which any other string (such as a path) is allowed.
  FieldBuilder& words(std::initializer_list<std::string_view> words);
  /// Refuses an empty list (but not empty lists in it) or string, with `message`.
  FieldBuilder& not_empty(std::string_view message);
  FieldBuilder& unit(std::string_view unit);
  FieldBuilder& doc(std::string_view doc);

 private:
  Parameter& parameter_;
};

/// The parameters of a struct whose type is not known here: the part of `Fields` that is the same for every struct, and
/// is therefore compiled once instead of some hundred times.
class FieldList {
 public:
  /// How parameters that were declared before must fit together. Reading checks it, and editors see it.
  void rule(Rule rule);
  /// Exactly one of the two must be given.
  void either(const std::string& one, const std::string& other);
  /// The part of T's `check` that JSON Schema can express and no rule can: a schema for the whole mapping. Editors use
  /// it, reading does not.
  void relation(nlohmann::json schema) { relations_.push_back(std::move(schema)); }

  /// Every parameter of the struct at `component` as a recipe would write it, defaults included.
  nlohmann::json write(const void* component) const;

  std::vector<Parameter> parameters() const;
  const std::vector<nlohmann::json>& relations() const { return relations_; }
  /// Of each rule that asks for one of several parameters, whatever else is given, the first of them.
  std::vector<std::string> wanted() const;
  /// {"type": "object", "properties": …, "additionalProperties": false, "required": …, "allOf": relations}
  nlohmann::json schema(SchemaContext& context) const;

 protected:
  /// Declares a member of type F, `offset` bytes into the struct; `fallback` is its default, or null where it is
  /// required.
  template <class F>
  FieldBuilder declare(std::string_view name, std::ptrdiff_t offset, const F* fallback);
  /// Reads `map` into the struct at `target`.
  void read_into(void* target, const Value& map, Reader& reader, const std::string& owner,
                 const std::vector<std::string>& known_elsewhere) const;
  void check_rules(const void* component, Checker& checker) const;

 private:
  /// Throws std::logic_error where there is none.
  const Field& field_of(const std::string& parameter) const;
  Parameter& add(std::string_view name, std::string type, nlohmann::json (*schema)(SchemaContext&), Field field);

  std::deque<Field> fields_;  // a deque: builders point into it
  std::vector<Rule> rules_;
  std::vector<nlohmann::json> relations_;
};

/// Collects the parameters of T as `T::describe(Fields<T>&)` declares them; then reads a T from a recipe.
template <class T>
class Fields : public FieldList {
 public:
  /// Declares all of T's parameters.
  Fields() { T::describe(*this); }

  /// A member of T or of a base of T.
  template <class F, class Base>
  FieldBuilder required(std::string_view name, F Base::* member) {
    return declare<F>(name, offset_of(defaults_.*member), nullptr);
  }
  /// The default is the member's initialiser.
  template <class F, class Base>
  FieldBuilder optional(std::string_view name, F Base::* member) {
    return declare<F>(name, offset_of(defaults_.*member), &(defaults_.*member));
  }

  /// Reads `map` into a T; problems are added to `reader`. Keys in `known_elsewhere` are left alone, other unknown keys
  /// are refused; the message names `owner` ("Conv2d", "training") as the one whose parameters they would be.
  T read(const Value& map, Reader& reader, const std::string& owner,
         const std::vector<std::string>& known_elsewhere = {}) const;

 private:
  template <class F>
  std::ptrdiff_t offset_of(const F& member) const {
    return reinterpret_cast<const char*>(&member) - reinterpret_cast<const char*>(&defaults_);
  }

  const T defaults_{};
};

/// A part of the recipe that is a plain mapping: anything with `describe` and no `build`.
template <class T>
concept Section = requires(Fields<T>& fields) { T::describe(fields); };

namespace detail {

/// A parameter's default, as JSON. The parameters of a section have their own defaults.
template <class F>
nlohmann::json default_value(const F& initial) {
  if constexpr (Section<F>) {
    return nlohmann::json::object();
  } else {
    return Codec<F>::write(initial);
  }
}

/// Reports `text` if the parameter has choices and it is not one of them.
void check_choice(const std::string& text, const Parameter& parameter, const Place& place, Reader& reader);
/// Reports `value` if it is empty and the parameter may not be.
void check_not_empty(const Value& value, const Parameter& parameter, Reader& reader);
/// "expected a mapping, found 'lr:0.1'; is there no space after the colon?"
std::string no_mapping(const Value& value);

/// `number` as the recipe writes it where it is the whole of `value`: a float64 does not hold every int64.
std::string as_written(const Value& value, double number);

/// Reads one parameter. Range, choices and emptiness are checked here, in one place for every type.
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
      reader.error(value.place(), "must be " + parameter.range.to_string() + ", is " + as_written(value, number));
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
/// What a complete mapping must also have: {"required": …, "allOf": relations}, or {}.
nlohmann::json whole_schema(const std::vector<Parameter>& parameters, const std::vector<nlohmann::json>& relations);
/// Reports the keys of `map` that are neither parameters nor known elsewhere, and what is required and missing.
void check_keys(const Value& map, const std::vector<const Parameter*>& parameters,
                const std::vector<std::string>& known_elsewhere, const std::string& owner, Reader& reader);

/// Reads one parameter into the member of type F at `member`; one that is wrong leaves it as it is.
template <class F>
void read_member(const Parameter& parameter, const Value& value, Reader& reader, void* member) {
  if (auto result = read_parameter<F>(parameter, value, reader)) *static_cast<F*>(member) = std::move(*result);
}

template <class F>
nlohmann::json write_member(const void* member) {
  return Codec<F>::write(*static_cast<const F*>(member));
}

}  // namespace detail

template <class F>
FieldBuilder FieldList::declare(std::string_view name, std::ptrdiff_t offset, const F* fallback) {
  Parameter& parameter = add(name, Codec<F>::type_name(), &Codec<F>::schema,
                             {{}, offset, &detail::read_member<F>, &detail::write_member<F>});
  if constexpr (detail::HasChoice<F>) {
    for (const char* word : Words<typename detail::ChoiceIn<F>::Type>::kWords) parameter.choices.emplace_back(word);
  }
  parameter.required = fallback == nullptr;
  if (fallback) parameter.default_value = detail::default_value(*fallback);
  return FieldBuilder(parameter);
}

template <class T>
T Fields<T>::read(const Value& map, Reader& reader, const std::string& owner,
                  const std::vector<std::string>& known_elsewhere) const {
  const size_t before = reader.problems().size();
  T result{};
  read_into(&result, map, reader, owner, known_elsewhere);
  if (reader.problems().size() == before) {
    Checker checker(map, reader);
    check_rules(&result, checker);
    if constexpr (Checked<T>) result.check(checker);
  }
  return result;
}

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
  static nlohmann::json write(const T& value) { return fields().write(&value); }
  static std::string type_name() { return "mapping"; }
};

// Members of these types are everywhere: parameters.cpp holds the code for them.
extern template FieldBuilder FieldList::declare(std::string_view, std::ptrdiff_t, const bool*);
extern template FieldBuilder FieldList::declare(std::string_view, std::ptrdiff_t, const int64_t*);
extern template FieldBuilder FieldList::declare(std::string_view, std::ptrdiff_t, const double*);
extern template FieldBuilder FieldList::declare(std::string_view, std::ptrdiff_t, const std::string*);
extern template FieldBuilder FieldList::declare(std::string_view, std::ptrdiff_t, const std::optional<int64_t>*);
extern template FieldBuilder FieldList::declare(std::string_view, std::ptrdiff_t, const std::optional<double>*);
extern template FieldBuilder FieldList::declare(std::string_view, std::ptrdiff_t, const std::optional<std::string>*);
extern template FieldBuilder FieldList::declare(std::string_view, std::ptrdiff_t, const std::vector<int64_t>*);
extern template FieldBuilder FieldList::declare(std::string_view, std::ptrdiff_t, const std::vector<double>*);
extern template FieldBuilder FieldList::declare(std::string_view, std::ptrdiff_t, const std::vector<std::string>*);
extern template FieldBuilder FieldList::declare(std::string_view, std::ptrdiff_t, const Ints<1>*);
extern template FieldBuilder FieldList::declare(std::string_view, std::ptrdiff_t, const Ints<2>*);
extern template FieldBuilder FieldList::declare(std::string_view, std::ptrdiff_t, const Ints<3>*);

}  // namespace trainrun
