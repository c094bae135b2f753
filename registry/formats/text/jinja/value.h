#pragma once

#include <nlohmann/json_fwd.hpp>

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

// The values of templates, with the rules of Python for truth, equality, order and text.

namespace trainrun::jinja {

/// A mistake in a template, or what it refuses by itself.
struct TemplateError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// What a template may take before it is refused: steps, and bytes of all texts and lists that it ever makes.
class Budget {
 public:
  void spend(size_t steps = 1) {
    steps_ += steps;
    if (steps_ > kMostSteps) throw TemplateError("takes too long: more than 50 million steps");
  }
  void build(size_t bytes) {
    bytes_ += bytes;
    if (bytes_ > kMostBytes) throw TemplateError("makes too much: more than 512 MiB of texts and lists");
    spend(bytes / 64);
  }

 private:
  static constexpr size_t kMostSteps = 50'000'000;
  static constexpr size_t kMostBytes = size_t{1} << 29;
  size_t steps_ = 0;
  size_t bytes_ = 0;
};

class Value;
using Values = std::vector<Value>;

struct Undefined {
  std::string reason;  // "'x' is undefined"
};
struct None {};
struct List {
  Values items;
  bool is_tuple = false;
  int depth = 0;
};
struct Dict {
  std::vector<std::pair<Value, Value>> members;  // in their order
  int depth = 0;
  const Value* find(const Value& key, Budget& budget) const;
  const Value* find(std::string_view key) const;
};
/// What `namespace()` makes: its attributes are set from inner blocks.
struct Namespace {
  std::vector<std::pair<std::string, Value>> attributes;
};
/// `loop` within a for.
struct Loop {
  std::shared_ptr<const List> items;
  size_t index = 0;
  Values last_seen;  // by loop.changed
};

/// What the filter safe makes of a text: one that nothing is to be escaped in.
struct Safe {
  std::shared_ptr<const std::string> text;
};

/// What a function is called with.
struct Arguments {
  Values positional;
  std::vector<std::pair<std::string, Value>> named;
};
struct Function {
  std::string name;
  std::function<Value(Budget&, const Arguments&)> call;
};

/// How deep lists and dicts lie in each other at most.
constexpr int kMostDepth = 100;

class Value {
 public:
  using Text = std::shared_ptr<const std::string>;

  Value() : data_(Undefined{"a value is undefined"}) {}
  static Value undefined(std::string reason) { return Value(Undefined{std::move(reason)}); }
  static Value none() { return Value(None{}); }
  static Value flag(bool value) { return Value(value); }
  static Value integer(int64_t value) { return Value(value); }
  static Value number(double value) { return Value(value); }
  static Value text(std::string value, Budget& budget);
  static Value safe(std::string value, Budget& budget);
  /// Throws TemplateError where they are too deep.
  static Value list(Values items, Budget& budget, bool is_tuple = false);
  static Value dict(std::vector<std::pair<Value, Value>> members, Budget& budget);
  static Value of(std::shared_ptr<Namespace> space) { return Value(std::move(space)); }
  static Value of(std::shared_ptr<Loop> loop) { return Value(std::move(loop)); }
  static Value function(std::string name, std::function<Value(Budget&, const Arguments&)> call);
  static Value from_json(const nlohmann::ordered_json& json, Budget& budget, int depth = 0);

  bool is_undefined() const { return std::holds_alternative<Undefined>(data_); }
  bool is_none() const { return std::holds_alternative<None>(data_); }
  const Undefined* as_undefined() const { return std::get_if<Undefined>(&data_); }
  const bool* as_flag() const { return std::get_if<bool>(&data_); }
  const int64_t* as_integer() const { return std::get_if<int64_t>(&data_); }
  const double* as_number() const { return std::get_if<double>(&data_); }
  const std::string* as_text() const { return is_safe() ? std::get<Safe>(data_).text.get() : pointer<Text>(); }
  bool is_safe() const { return std::holds_alternative<Safe>(data_); }
  const List* as_list() const { return pointer<std::shared_ptr<const List>>(); }
  std::shared_ptr<const List> shared_list() const { return std::get<std::shared_ptr<const List>>(data_); }
  const Dict* as_dict() const { return pointer<std::shared_ptr<const Dict>>(); }
  Namespace* as_namespace() const { return pointer<std::shared_ptr<Namespace>>(); }
  Loop* as_loop() const { return pointer<std::shared_ptr<Loop>>(); }
  const Function* as_function() const { return pointer<std::shared_ptr<const Function>>(); }

  /// 0 for what holds nothing. What refers to blocks of the template counts as deepest, so that nothing can hold it.
  int depth() const;
  /// As Python calls it: "str".
  const char* type_name() const;

 private:
  using Data = std::variant<Undefined, None, bool, int64_t, double, Text, std::shared_ptr<const List>,
                            std::shared_ptr<const Dict>, std::shared_ptr<Namespace>, std::shared_ptr<Loop>,
                            std::shared_ptr<const Function>, Safe>;
  template <class T>
  explicit Value(T data) : data_(std::move(data)) {}
  template <class Pointer>
  typename Pointer::element_type* pointer() const {
    const Pointer* found = std::get_if<Pointer>(&data_);
    return found ? found->get() : nullptr;
  }
  Data data_;
};

/// What looking through texts costs, where nothing is made of them: a step for each 16 bytes. Others cost nothing.
void spend_on(Budget& budget, const Value& value);
/// What looking at each letter of a text costs: a step for each 4 bytes.
inline void spend_on_letters(Budget& budget, const std::string& text) { budget.spend(text.size() / 4); }
void spend_on(Budget& budget, const Arguments& arguments);

/// The arguments by the names of a function's parameters, those not given null. Throws TemplateError where they do not
/// fit: too many, unknown, given twice, or one of the first `required` missing.
class Bound {
 public:
  Bound(const std::string& function, const Arguments& arguments, std::initializer_list<const char*> parameters,
        size_t required = 0);
  const Value* operator[](size_t i) const { return values_[i]; }
  const Value& at(size_t i) const { return *values_[i]; }
  /// A string, an integer or a boolean. Throws TemplateError.
  std::string text(size_t i, const std::string& otherwise) const;
  int64_t integer(size_t i, int64_t otherwise) const;
  bool flag(size_t i, bool otherwise) const;

 private:
  [[noreturn]] void expected(size_t i, const char* what) const;
  std::string function_;
  std::vector<const Value*> values_;
};

bool is_true(const Value& value);
/// Throws TemplateError where one of them is undefined and `what` is done with it.
void require_defined(const Value& value);
/// An integer or a boolean as an integer; null for others.
std::optional<int64_t> whole(const Value& value);
/// The same for any number.
std::optional<double> real(const Value& value);
bool equal(const Value& a, const Value& b, Budget& budget);
/// Below 0 where a is less than b, 0, or above. Throws TemplateError where Python has no order.
int compare(const Value& a, const Value& b, Budget& budget);
/// `item in container`
bool contains(const Value& container, const Value& item, Budget& budget);
/// What a for goes through. Throws TemplateError.
Value iterated(const Value& value, Budget& budget);
int64_t length_of(const Value& value);

/// str(value) and repr(value).
std::string str(const Value& value, Budget& budget);
std::string repr(const Value& value, Budget& budget);
/// repr of a float: "1.0", "1e-05".
std::string float_text(double value);

struct JsonStyle {
  bool ensure_ascii = false;
  std::optional<std::string> indent;
  std::string item_separator = ", ";
  std::string key_separator = ": ";
  bool sort_keys = false;
};
/// json.dumps(value). Throws TemplateError for what JSON has no form for.
std::string json_text(const Value& value, const JsonStyle& style, Budget& budget);

}  // namespace trainrun::jinja
