#include "registry/formats/text/jinja/expression.h"

#include <algorithm>
#include <charconv>

namespace trainrun::jinja {

using Kind = Token::Kind;

const Value* Scope::find(const std::string& name) const {
  for (const Scope* scope = this; scope; scope = scope->outer) {
    const auto found = scope->variables.find(name);
    if (found != scope->variables.end()) return &found->second;
  }
  return nullptr;
}

const Token& TokenStream::next() {
  const Token& token = tokens_[at_];
  if (token.kind != Kind::kEnd) ++at_;
  return token;
}

bool TokenStream::skip(std::string_view operator_text) {
  if (!peek().is_operator(operator_text)) return false;
  ++at_;
  return true;
}

bool TokenStream::skip_name(std::string_view name) {
  if (!peek().is_name(name)) return false;
  ++at_;
  return true;
}

void TokenStream::fail_here() const {
  switch (peek().kind) {
    case Kind::kEnd:
      fail("the template ends too early");
    case Kind::kBlockEnd:
      fail("unexpected end of the block");
    case Kind::kVariableEnd:
      fail("unexpected end of the expression");
    default:
      fail("unexpected '" + peek().text.substr(0, 40) + "'");
  }
}

void TokenStream::expect(std::string_view operator_text) {
  if (!skip(operator_text)) fail_here();
}

std::string TokenStream::expect_name() {
  if (peek().kind != Kind::kName) fail_here();
  return next().text;
}

void TokenStream::expect_kind(Kind kind, const char* what) {
  if (peek().kind != kind) fail("expected " + std::string(what) + ", found '" + peek().text.substr(0, 40) + "'");
  next();
}

Arguments CallArguments::evaluate(Context& context) const {
  Arguments made;
  for (const Expression& each : positional) made.positional.push_back(each(context));
  for (const auto& [name, each] : named) made.named.emplace_back(name, each(context));
  return made;
}

Expression ExpressionParser::made(int height, Expression::Function function) const {
  if (height >= kMostHeight) tokens_.fail("the expression is too deep: more than 100 operations within each other");
  return {std::move(function), height + 1};
}

Expression ExpressionParser::made(std::initializer_list<const Expression*> parts, Expression::Function function) const {
  int height = 0;
  for (const Expression* part : parts) height = std::max(height, part->height());
  return made(height, std::move(function));
}

Expression ExpressionParser::binary(const Expression& left, const Expression& right,
                                    Value (*compute)(Budget&, const Value&, const Value&)) const {
  return made({&left, &right}, [=](Context& c) {
    const Value a = left(c);
    return compute(c.budget, a, right(c));
  });
}

Expression ExpressionParser::expression(bool has_condition) {
  if (++nesting_ > kMostHeight) tokens_.fail("the expression is too deep: more than 100 brackets within each other");
  Expression result = has_condition ? conditional() : either();
  --nesting_;
  return result;
}

Expression ExpressionParser::conditional() {
  Expression result = either();
  while (tokens_.skip_name("if")) {
    const Expression condition = either();
    Expression otherwise =
        made(0, [](Context&) { return Value::undefined("the condition is false and there is no else"); });
    if (tokens_.skip_name("else")) otherwise = expression();
    result = made({&condition, &result, &otherwise}, [condition, result, otherwise](Context& c) {
      return is_true(condition(c)) ? result(c) : otherwise(c);
    });
  }
  return result;
}

Expression ExpressionParser::either() {
  Expression left = both();
  while (tokens_.skip_name("or")) {
    const Expression right = both();
    left = made({&left, &right}, [left, right](Context& c) {
      Value value = left(c);
      return is_true(value) ? value : right(c);
    });
  }
  return left;
}

Expression ExpressionParser::both() {
  Expression left = negation();
  while (tokens_.skip_name("and")) {
    const Expression right = negation();
    left = made({&left, &right}, [left, right](Context& c) {
      Value value = left(c);
      return is_true(value) ? right(c) : value;
    });
  }
  return left;
}

Expression ExpressionParser::negation() {
  bool negates = false;
  bool any = false;
  while (tokens_.skip_name("not")) {
    negates = !negates;
    any = true;
  }
  Expression of = comparison();
  if (!any) return of;
  return made({&of}, [of, negates](Context& c) { return Value::flag(is_true(of(c)) != negates); });
}

namespace {

bool holds(const std::string& relation, const Value& a, const Value& b, Budget& budget) {
  if (relation == "==") return equal(a, b, budget);
  if (relation == "!=") return !equal(a, b, budget);
  if (relation == "in") return contains(b, a, budget);
  if (relation == "not in") return !contains(b, a, budget);
  const int order = compare(a, b, budget);
  if (relation == "<") return order < 0;
  if (relation == "<=") return order <= 0;
  return relation == ">" ? order > 0 : order >= 0;
}

}  // namespace

Expression ExpressionParser::comparison() {
  Expression first = sum();
  std::vector<std::pair<std::string, Expression>> chain;
  int height = first.height();
  while (true) {
    std::string relation;
    for (const char* one : {"==", "!=", "<=", ">=", "<", ">"}) {
      if (relation.empty() && tokens_.skip(one)) relation = one;
    }
    if (relation.empty() && tokens_.skip_name("in")) relation = "in";
    if (relation.empty() && tokens_.peek().is_name("not")) {
      tokens_.next();
      if (!tokens_.skip_name("in")) tokens_.fail_here();
      relation = "not in";
    }
    if (relation.empty()) break;
    chain.emplace_back(relation, sum());
    height = std::max(height, chain.back().second.height());
  }
  if (chain.empty()) return first;
  return made(height, [first, chain](Context& c) {
    Value left = first(c);
    for (const auto& [relation, operand] : chain) {
      Value right = operand(c);
      if (!holds(relation, left, right, c.budget)) return Value::flag(false);
      left = std::move(right);
    }
    return Value::flag(true);
  });
}

Expression ExpressionParser::sum() {
  Expression left = concatenation();
  while (tokens_.peek().is_operator("+") || tokens_.peek().is_operator("-")) {
    const bool adds = tokens_.next().text == "+";
    left = binary(left, concatenation(), adds ? add : subtract);
  }
  return left;
}

Expression ExpressionParser::concatenation() {
  std::vector<Expression> parts = {product()};
  int height = parts[0].height();
  while (tokens_.skip("~")) {
    parts.push_back(product());
    height = std::max(height, parts.back().height());
  }
  if (parts.size() == 1) return parts[0];
  return made(height, [parts](Context& c) {
    std::string text;
    for (const Expression& part : parts) {
      const std::string piece = str(part(c), c.budget);
      c.budget.build(piece.size());
      text += piece;
    }
    Budget paid;
    return Value::text(std::move(text), paid);
  });
}

Expression ExpressionParser::product() {
  Expression left = power();
  while (true) {
    if (tokens_.skip("*")) {
      left = binary(left, power(), multiply);
    } else if (tokens_.skip("//")) {
      left = binary(left, power(), floor_divide);
    } else if (tokens_.skip("/")) {
      left = binary(left, power(), divide);
    } else if (tokens_.skip("%")) {
      left = binary(left, power(), modulo);
    } else {
      return left;
    }
  }
}

Expression ExpressionParser::power() {
  Expression left = unary();
  while (tokens_.skip("**")) left = binary(left, unary(), raise_power);
  return left;
}

Expression ExpressionParser::unary(bool has_filters) {
  Expression result;
  if (tokens_.peek().is_operator("-") || tokens_.peek().is_operator("+")) {
    const bool negates = tokens_.next().text == "-";
    if (++nesting_ > kMostHeight) tokens_.fail("the expression is too deep: more than 100 signs and brackets");
    const Expression of = unary(false);
    --nesting_;
    result = made(
        {&of}, [of, negates](Context& c) { return negates ? negate(of(c)) : add(c.budget, Value::integer(0), of(c)); });
  } else {
    result = primary();
  }
  result = postfix(std::move(result));
  return has_filters ? filters_and_tests(std::move(result)) : result;
}

namespace {

/// true, false and none, in both spellings that Jinja knows.
std::optional<Value> constant(const std::string& name) {
  if (name == "true" || name == "True") return Value::flag(true);
  if (name == "false" || name == "False") return Value::flag(false);
  if (name == "none" || name == "None") return Value::none();
  return std::nullopt;
}

}  // namespace

Value number_of(const Token& token) {
  const char* end = token.text.data() + token.text.size();
  int64_t integer = 0;
  double number = 0;
  const bool is_integer = token.kind == Kind::kInteger;
  const auto result =
      is_integer ? std::from_chars(token.text.data(), end, integer) : std::from_chars(token.text.data(), end, number);
  if (result.ec != std::errc() || result.ptr != end) fail_at(token.line, "the number is out of range: " + token.text);
  return is_integer ? Value::integer(integer) : Value::number(number);
}

Expression ExpressionParser::primary() {
  const Token token = tokens_.peek();
  if (token.kind == Kind::kName) {
    tokens_.next();
    if (const auto value = constant(token.text)) return made(0, [value = *value](Context&) { return value; });
    return made(0, [name = token.text](Context& c) {
      c.budget.spend(name.size() / 16);
      const Value* found = c.scope->find(name);
      return found ? *found : Value::undefined("'" + name + "' is undefined");
    });
  }
  if (token.kind == Kind::kText) {
    std::string text;
    while (tokens_.peek().kind == Kind::kText) text += tokens_.next().text;
    Budget free;
    return made(0, [value = Value::text(std::move(text), free)](Context&) { return value; });
  }
  if (token.kind == Kind::kInteger || token.kind == Kind::kFloat) {
    tokens_.next();
    return made(0, [value = number_of(token)](Context&) { return value; });
  }
  if (token.is_operator("(")) return in_parentheses();
  if (token.is_operator("[")) return literal_list();
  if (token.is_operator("{")) return literal_dict();
  tokens_.fail_here();
}

Expression ExpressionParser::in_parentheses() {
  tokens_.expect("(");
  if (tokens_.skip(")")) {
    return made(0, [](Context& c) { return Value::list({}, c.budget, /*is_tuple=*/true); });
  }
  Expression result = tuple();
  tokens_.expect(")");
  return result;
}

Expression ExpressionParser::tuple(bool has_condition) {
  Expression first = expression(has_condition);
  if (!tokens_.peek().is_operator(",")) return first;
  std::vector<Expression> parts = {std::move(first)};
  int height = parts[0].height();
  while (tokens_.skip(",")) {
    const Token& token = tokens_.peek();
    if (token.is_operator(")") || token.kind == Kind::kVariableEnd || token.kind == Kind::kBlockEnd) break;
    parts.push_back(expression(has_condition));
    height = std::max(height, parts.back().height());
  }
  return made(height, [parts](Context& c) {
    Values items;
    for (const Expression& part : parts) items.push_back(part(c));
    return Value::list(std::move(items), c.budget, /*is_tuple=*/true);
  });
}

Expression ExpressionParser::literal_list() {
  tokens_.expect("[");
  std::vector<Expression> parts;
  int height = 0;
  while (!tokens_.skip("]")) {
    if (!parts.empty()) tokens_.expect(",");
    if (tokens_.skip("]")) break;
    parts.push_back(expression());
    height = std::max(height, parts.back().height());
  }
  return made(height, [parts](Context& c) {
    Values items;
    for (const Expression& part : parts) items.push_back(part(c));
    return Value::list(std::move(items), c.budget);
  });
}

Expression ExpressionParser::literal_dict() {
  tokens_.expect("{");
  std::vector<std::pair<Expression, Expression>> parts;
  int height = 0;
  while (!tokens_.skip("}")) {
    if (!parts.empty()) tokens_.expect(",");
    if (tokens_.skip("}")) break;
    Expression key = expression();
    tokens_.expect(":");
    parts.emplace_back(std::move(key), expression());
    height = std::max({height, parts.back().first.height(), parts.back().second.height()});
  }
  return made(height, [parts](Context& c) {
    std::vector<std::pair<Value, Value>> members;
    for (const auto& [key, value] : parts) {
      Value name = key(c);
      members.emplace_back(std::move(name), value(c));
    }
    return Value::dict(std::move(members), c.budget);
  });
}

}  // namespace trainrun::jinja
