#pragma once

#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <type_traits>
#include <variant>
#include <vector>

#include "registry/language/error.h"
#include "registry/language/value.h"

namespace trainrun {

class Catalog;
struct Parameter;

/// What the reading of a recipe needs: the current path, the known components, and the list to which problems are
/// added.
class Reader {
 public:
  Reader(const Catalog& catalog, std::vector<Problem>& problems) : catalog_(catalog), problems_(problems) {}

  const Catalog& catalog() const { return catalog_; }
  std::vector<Problem>& problems() { return problems_; }
  /// The path of the value being read: "model.layers[2]".
  const std::string& path() const { return path_; }

  void error(const Place& place, const std::string& message) { problems_.push_back({place, path_, message}); }

  /// Extends the path for as long as the object lives.
  class Scope {
   public:
    Scope(Reader& reader, const std::string& step) : reader_(reader), length_(reader.path_.size()) {
      reader.path_ += step;
    }
    ~Scope() { reader_.path_.resize(length_); }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    Reader& reader_;
    size_t length_;
  };
  Scope enter(const std::string& key) { return {*this, path_.empty() || key.empty() ? key : "." + key}; }
  Scope enter(size_t index) { return {*this, "[" + std::to_string(index) + "]"}; }

  /// Named pieces of this recipe (`model.blocks`) that may be used like layer types; null if there are none.
  const Value* blocks = nullptr;
  /// The current depth of layers within layers, and the number of layers read so far. Both are bounded, so that no
  /// recipe expands for ever.
  int layer_depth = 0;
  int64_t num_layers_read = 0;
  /// The blocks being expanded, outermost first; a block may not be used within itself.
  std::vector<std::string> open_blocks;
  /// Names from outside their own list that the layers read so far use.
  std::vector<std::string> free_names;

 private:
  const Catalog& catalog_;
  std::vector<Problem>& problems_;
  std::string path_;
};

/// What building a JSON Schema needs: the components, and the parameters of the one whose schema is being made.
struct SchemaContext {
  const Catalog& catalog;
  const std::vector<Parameter>* own = nullptr;
};

/// How a C++ type is written in a recipe. Specialisations have
///   static std::optional<T> read(const Value&, Reader&);   // nothing: a problem was reported
///   static nlohmann::json schema(SchemaContext&);
///   static nlohmann::json write(const T&);                  // for defaults
///   static std::string type_name();                         // for people
template <class T>
struct Codec;

namespace detail {
/// "integers", "list of (integer or string)": several of what `name` says.
std::string plural(const std::string& name);
/// "; write [Accuracy]" where one item of type `item` stands for a list of it, else "".
std::string list_hint(const Value& value, const std::string& item);
}  // namespace detail

template <>
struct Codec<bool> {
  static std::optional<bool> read(const Value& value, Reader& reader);
  static nlohmann::json schema(SchemaContext&) { return {{"type", "boolean"}}; }
  static nlohmann::json write(bool value) { return value; }
  static std::string type_name() { return "true or false"; }
};

template <>
struct Codec<int64_t> {
  static std::optional<int64_t> read(const Value& value, Reader& reader);
  static nlohmann::json schema(SchemaContext&) { return {{"type", "integer"}}; }
  static nlohmann::json write(int64_t value) { return value; }
  static std::string type_name() { return "integer"; }
};

template <>
struct Codec<double> {
  static std::optional<double> read(const Value& value, Reader& reader);
  static nlohmann::json schema(SchemaContext&) { return {{"type", "number"}}; }
  static nlohmann::json write(double value) { return value; }
  static std::string type_name() { return "number"; }
};

template <>
struct Codec<std::string> {
  static std::optional<std::string> read(const Value& value, Reader& reader);
  static nlohmann::json schema(SchemaContext&) { return {{"type", "string"}}; }
  static nlohmann::json write(const std::string& value) { return value; }
  static std::string type_name() { return "string"; }
};

/// The words that the values of an enum are in a recipe, from value 0 on; they are its parameter's choices.
///   enum class Mode { kMin, kMax };
///   template <>
///   struct Words<Mode> { static constexpr std::array kWords = {"min", "max"}; };
template <class E>
struct Words;

template <class E>
concept Choice = std::is_enum_v<E> && requires { Words<E>::kWords.size(); };

template <Choice E>
std::string word_of(E value) {
  return Words<E>::kWords[static_cast<size_t>(value)];
}
/// The value whose word this is; empty if there is none.
template <Choice E>
std::optional<E> choice_of(const std::string& word) {
  const auto found = std::find(Words<E>::kWords.begin(), Words<E>::kWords.end(), word);
  if (found == Words<E>::kWords.end()) return std::nullopt;
  return static_cast<E>(found - Words<E>::kWords.begin());
}

/// JSON, such as that of a checkpoint, also holds the word.
template <Choice E>
void to_json(nlohmann::json& json, const E& choice) {
  json = word_of(choice);
}
template <Choice E>
void to_json(nlohmann::ordered_json& json, const E& choice) {
  json = word_of(choice);
}

template <Choice E>
struct Codec<E> {
  static std::optional<E> read(const Value& value, Reader& reader) {
    const auto word = Codec<std::string>::read(value, reader);
    return word ? choice_of<E>(*word) : std::nullopt;  // read_parameter has reported a wrong word
  }
  static nlohmann::json schema(SchemaContext&) { return {{"type", "string"}}; }
  static nlohmann::json write(E value) { return word_of(value); }
  static std::string type_name() { return "string"; }
};

template <class T>
struct Codec<std::optional<T>> {
  static std::optional<std::optional<T>> read(const Value& value, Reader& reader) {
    const bool null = value.is_null() || (value.is_scalar() && value.scalar_type() == ScalarType::kNull);
    if (null) return std::optional<std::optional<T>>(std::in_place);
    if (auto result = Codec<T>::read(value, reader)) return std::optional<T>(std::move(*result));
    return std::nullopt;
  }
  static nlohmann::json schema(SchemaContext& context) {
    return {{"anyOf", {Codec<T>::schema(context), {{"type", "null"}}}}};
  }
  static nlohmann::json write(const std::optional<T>& value) {
    return value ? Codec<T>::write(*value) : nlohmann::json();
  }
  static std::string type_name() { return Codec<T>::type_name() + " or null"; }
};

template <class T>
struct Codec<std::vector<T>> {
  static std::optional<std::vector<T>> read(const Value& value, Reader& reader) {
    if (!value.is_list()) {
      reader.error(value.place(), "expected a " + type_name() + ", found " + value.describe() +
                                      detail::list_hint(value, Codec<T>::type_name()));
      return std::nullopt;
    }
    std::vector<T> result;
    for (size_t i = 0; i < value.items().size(); ++i) {
      const auto scope = reader.enter(i);
      if (auto item = Codec<T>::read(value.items()[i], reader)) result.push_back(std::move(*item));
    }
    return result;
  }
  static nlohmann::json schema(SchemaContext& context) {
    return {{"type", "array"}, {"items", Codec<T>::schema(context)}};
  }
  static nlohmann::json write(const std::vector<T>& value) {
    auto result = nlohmann::json::array();
    for (const T& item : value) result.push_back(Codec<T>::write(item));
    return result;
  }
  static std::string type_name() { return "list of " + detail::plural(Codec<T>::type_name()); }
};

/// N integers, written as one (for all) or as a list of N: `kernel_size: 3`, `kernel_size: [3, 5]`.
template <size_t N>
struct Ints : std::array<int64_t, N> {
  Ints() : Ints(0) {}
  Ints(int64_t all) { this->fill(all); }  // NOLINT(google-explicit-constructor): a number is a Pair, as in PyTorch
};
using Pair = Ints<2>;

template <size_t N>
struct Codec<Ints<N>> {
  static std::optional<Ints<N>> read(const Value& value, Reader& reader) {
    if (!value.is_list()) {
      const auto all = Codec<int64_t>::read(value, reader);
      return all ? std::optional<Ints<N>>(*all) : std::nullopt;
    }
    const auto items = Codec<std::vector<int64_t>>::read(value, reader);
    if (!items) return std::nullopt;
    if (items->size() != N) {
      reader.error(value.place(), "expected " + type_name() + ", found a list of " + std::to_string(items->size()));
      return std::nullopt;
    }
    Ints<N> result;
    std::copy(items->begin(), items->end(), result.begin());
    return result;
  }
  static nlohmann::json schema(SchemaContext&) {
    const nlohmann::json list = {{"type", "array"}, {"items", {{"type", "integer"}}}, {"minItems", N}, {"maxItems", N}};
    return {{"anyOf", {{{"type", "integer"}}, list}}};
  }
  static nlohmann::json write(const Ints<N>& value) {
    for (const int64_t item : value) {
      if (item != value[0]) return std::vector<int64_t>(value.begin(), value.end());
    }
    return value[0];
  }
  static std::string type_name() { return "integer or list of " + std::to_string(N); }
};

/// The number of dimensions decides: N numbers as a list, no shorthand (`betas: [0.9, 0.999]`).
template <class T, size_t N>
struct Codec<std::array<T, N>> {
  static std::optional<std::array<T, N>> read(const Value& value, Reader& reader) {
    if (!value.is_list()) {
      reader.error(value.place(), "expected a " + type_name() + ", found " + value.describe());
      return std::nullopt;
    }
    const size_t before = reader.problems().size();
    const auto items = Codec<std::vector<T>>::read(value, reader);
    if (!items || reader.problems().size() != before) return std::nullopt;
    if (items->size() != N) {
      reader.error(value.place(), "expected a " + type_name() + ", found a list of " + std::to_string(items->size()));
      return std::nullopt;
    }
    std::array<T, N> result{};
    std::copy(items->begin(), items->end(), result.begin());
    return result;
  }
  static nlohmann::json schema(SchemaContext& context) {
    return {{"type", "array"}, {"items", Codec<T>::schema(context)}, {"minItems", N}, {"maxItems", N}};
  }
  static nlohmann::json write(const std::array<T, N>& value) {
    return Codec<std::vector<T>>::write(std::vector<T>(value.begin(), value.end()));
  }
  static std::string type_name() {
    return "list of " + std::to_string(N) + " " +
           (N == 1 ? Codec<T>::type_name() : detail::plural(Codec<T>::type_name()));
  }
};

/// One of several types, tried in order: `every: epoch` or `every: 500`. If none fits, the message says so, unless one
/// of them fits except for a fault within it, or for something that is missing: then the message says that.
template <class... T>
struct Codec<std::variant<T...>> {
  static std::optional<std::variant<T...>> read(const Value& value, Reader& reader) {
    std::optional<std::variant<T...>> result;
    std::vector<Problem>& problems = reader.problems();
    const size_t before = problems.size();
    std::vector<Problem> within;
    const auto attempt = [&]<class One>() {
      if (result) return;
      auto one = Codec<One>::read(value, reader);
      const bool fits = one && problems.size() == before;
      const bool fits_outside = problems.size() > before && (problems[before].path != reader.path() ||
                                                             !problems[before].message.starts_with("expected "));
      if (fits_outside && within.empty()) {
        within.assign(problems.begin() + static_cast<std::ptrdiff_t>(before), problems.end());
      }
      problems.resize(before);
      if (fits) result = std::move(*one);
    };
    (attempt.template operator()<T>(), ...);
    if (!result && within.empty()) {
      reader.error(value.place(), "expected " + type_name() + ", found " + value.describe());
    }
    if (!result) problems.insert(problems.end(), within.begin(), within.end());
    return result;
  }
  static nlohmann::json schema(SchemaContext& context) { return {{"anyOf", {Codec<T>::schema(context)...}}}; }
  static nlohmann::json write(const std::variant<T...>& value) {
    return std::visit([]<class One>(const One& one) { return Codec<One>::write(one); }, value);
  }
  static std::string type_name() {
    std::string result;
    ((result += (result.empty() ? "" : " or ") + Codec<T>::type_name()), ...);
    return result;
  }
};

namespace detail {

/// The enum that a parameter's type is, or is or null; void for other types.
template <class T>
struct ChoiceIn {
  using Type = void;
};
template <Choice E>
struct ChoiceIn<E> {
  using Type = E;
};
template <class T>
struct ChoiceIn<std::optional<T>> : ChoiceIn<T> {};
template <class T>
concept HasChoice = !std::is_void_v<typename ChoiceIn<T>::Type>;

/// Calls `visit(double)` for each number in a parameter's value, so that one range check serves every type.
template <class T, class Visit>
void for_each_number(const T& value, const Visit& visit) {
  if constexpr (std::is_same_v<T, int64_t> || std::is_same_v<T, double>) {
    visit(static_cast<double>(value));
  } else if constexpr (requires { value.has_value(); }) {
    if (value) for_each_number(*value, visit);
  } else if constexpr (requires {
                         value.index();
                         value.valueless_by_exception();
                       }) {
    std::visit([&](const auto& one) { for_each_number(one, visit); }, value);
  } else if constexpr (std::is_same_v<T, std::string>) {
  } else if constexpr (requires {
                         value.begin();
                         value.end();
                       }) {
    for (const auto& item : value) for_each_number(item, visit);
  }
}

/// Calls `visit(const std::string&)` for each string in a parameter's value.
template <class T, class Visit>
void for_each_string(const T& value, const Visit& visit) {
  if constexpr (std::is_same_v<T, std::string>) {
    visit(value);
  } else if constexpr (requires { value.has_value(); }) {
    if (value) for_each_string(*value, visit);
  } else if constexpr (requires {
                         value.index();
                         value.valueless_by_exception();
                       }) {
    std::visit([&](const auto& one) { for_each_string(one, visit); }, value);
  } else if constexpr (requires {
                         value.begin();
                         value.end();
                       }) {
    for (const auto& item : value) for_each_string(item, visit);
  }
}

/// `no`, `off`, `NO` and `false` without quotes mean the choice 'no' (or 'NO') if there is such a choice.
Value spelled_as_choice(const Value& value, const std::vector<std::string>& choices);
/// The shortest text that reads back as `number`.
std::string number_text(double number);

}  // namespace detail
}  // namespace trainrun
