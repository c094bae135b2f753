#pragma once

#include <functional>
#include <initializer_list>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "registry/formats/text/jinja/lexer.h"
#include "registry/formats/text/jinja/value.h"

// Expressions of templates, as functions of what is known where they stand.

namespace trainrun::jinja {

/// The variables of a block, and of those around it. A block ends before those around it do.
struct Scope {
  const Scope* outer = nullptr;
  std::map<std::string, Value, std::less<>> variables;
  const Value* find(const std::string& name) const;
};

/// A template as it is rendered.
struct Context {
  Budget budget;
  Scope* scope = nullptr;
  std::string* out = nullptr;
  int line = 0;   // of the statement that runs
  int depth = 0;  // how far functions have called each other, in expressions and blocks that lie in each other
  std::string* whole = nullptr;                   // the text of the template itself, not of a block that is kept
  std::vector<std::pair<size_t, size_t>> marked;  // where {% generation %} blocks lie in it
  bool marked_elsewhere = false;                  // one lay in a block that is kept
};

/// How deep what is written in a template may lie in each other; what macros call counts further, to kMostCalled.
constexpr int kMostHeight = 100;
constexpr int kMostCalled = 1000;

class Expression {
 public:
  using Function = std::function<Value(Context&)>;
  Expression() = default;
  Expression(Function function, int height)
      : function_(std::make_shared<const Function>(std::move(function))), height_(height) {}
  Value operator()(Context& context) const {
    context.budget.spend();
    return (*function_)(context);
  }
  int height() const { return height_; }
  explicit operator bool() const { return static_cast<bool>(function_); }

 private:
  std::shared_ptr<const Function> function_;  // shared by its copies
  int height_ = 0;
};

/// The tokens of a template, and the place among them.
class TokenStream {
 public:
  explicit TokenStream(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}
  const Token& peek() const { return tokens_[at_]; }
  const Token& next();
  /// Whether this comes next; if so, it is passed.
  bool skip(std::string_view operator_text);
  bool skip_name(std::string_view name);
  void expect(std::string_view operator_text);
  std::string expect_name();
  void expect_kind(Token::Kind kind, const char* what);
  int line() const { return peek().line; }
  [[noreturn]] void fail(const std::string& message) const { fail_at(line(), message); }
  /// "unexpected 'x'"
  [[noreturn]] void fail_here() const;

 private:
  std::vector<Token> tokens_;
  size_t at_ = 0;
};

/// Arguments as they are written: those without names, and those with.
struct CallArguments {
  std::vector<Expression> positional;
  std::vector<std::pair<std::string, Expression>> named;
  int height = 0;
  Arguments evaluate(Context& context) const;
};

/// Reads expressions with the precedences of Jinja.
class ExpressionParser {
 public:
  explicit ExpressionParser(TokenStream& tokens) : tokens_(tokens) {}

  /// With `has_condition`, `a if b else c` is one.
  Expression expression(bool has_condition = true);
  /// One expression, or several with commas: a tuple.
  Expression tuple(bool has_condition = true);
  /// What follows the subject of filters: "| name(arguments) | …"; with `begun`, without the first "|".
  Expression filters(Expression subject, bool begun = false);
  /// What is called: a name, perhaps with attributes.
  Expression callee();
  CallArguments arguments();

 private:
  Expression conditional();
  Expression either();
  Expression both();
  Expression negation();
  Expression comparison();
  Expression sum();
  Expression concatenation();
  Expression product();
  Expression power();
  Expression unary(bool has_filters = true);
  Expression primary();
  Expression postfix(Expression subject);
  Expression filters_and_tests(Expression subject);
  Expression test(const Expression& subject);
  Expression call(const Expression& callee);
  Expression subscript(const Expression& subject);
  Expression literal_list();
  Expression literal_dict();
  Expression in_parentheses();
  Expression made(std::initializer_list<const Expression*> parts, Expression::Function function) const;
  Expression made(int height, Expression::Function function) const;
  Expression binary(const Expression& left, const Expression& right,
                    Value (*compute)(Budget&, const Value&, const Value&)) const;

  TokenStream& tokens_;
  int nesting_ = 0;
};

/// The value of an integer or float as it is written. Throws TemplateError.
Value number_of(const Token& token);

// --- what expressions compute

Value add(Budget& budget, const Value& a, const Value& b);
Value subtract(Budget& budget, const Value& a, const Value& b);
Value multiply(Budget& budget, const Value& a, const Value& b);
Value divide(Budget& budget, const Value& a, const Value& b);
Value floor_divide(Budget& budget, const Value& a, const Value& b);
Value modulo(Budget& budget, const Value& a, const Value& b);
Value raise_power(Budget& budget, const Value& a, const Value& b);
Value negate(const Value& a);
/// `subject.name`; undefined where there is none.
Value attribute(Budget& budget, const Value& subject, const std::string& name);
/// `subject[key]`; undefined where there is none.
Value item(Budget& budget, const Value& subject, const Value& key);
/// `subject[begin:end:step]`; each may be null.
Value slice(Budget& budget, const Value& subject, const Value& begin, const Value& end, const Value& step);
/// The method of a text, list or dict; nothing if it has no such method.
std::optional<Value> method(const Value& subject, const std::string& name);
Value call(Budget& budget, const Value& callee, const Arguments& arguments);

/// `subject | name(arguments)`, `subject is name(arguments)`. Throws TemplateError.
Value filter(Budget& budget, const std::string& name, const Value& subject, const Arguments& arguments);
bool test(Budget& budget, const std::string& name, const Value& subject, const Arguments& arguments);
bool is_filter(const std::string& name);
bool is_test(const std::string& name);

}  // namespace trainrun::jinja
