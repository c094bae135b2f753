#include "registry/language/expression.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <limits>
#include <optional>
#include <utility>

#include "registry/language/codec.h"
#include "registry/language/text_view.h"

namespace trainrun {

struct Expression::Node {
  std::string op;  // "" for an operand; "neg" for a '-' of one operand
  std::vector<std::unique_ptr<const Node>> operands;
  ExpressionValue literal = nullptr;
  std::string name;  // "" for a literal
};

namespace {

using NodePointer = std::unique_ptr<const Expression::Node>;

constexpr int kMaxLevels = 64;  // of parentheses and operators of one operand

bool is_name_start(char c) { return std::isalpha(static_cast<unsigned char>(c)) || c == '_'; }
bool is_name_part(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; }

std::string describe(const ExpressionValue& value) {
  if (std::holds_alternative<std::nullptr_t>(value)) return "null";
  if (const auto* flag = std::get_if<bool>(&value)) return *flag ? "true" : "false";
  if (const auto* whole = std::get_if<int64_t>(&value)) return std::to_string(*whole);
  if (const auto* number = std::get_if<double>(&value)) return detail::number_text(*number);
  return "the text '" + std::get<std::string>(value) + "'";
}

/// As it is written in an expression.
std::string literal_text(const ExpressionValue& value) {
  if (const auto* text = std::get_if<std::string>(&value)) {
    if (text->find_first_of("'{}") != std::string::npos) {
      throw ExpressionError("the text " + *text + " has a quote or a brace and cannot be part of an expression");
    }
    return "'" + *text + "'";
  }
  const std::string text = describe(value);
  return text.starts_with('-') ? "(" + text + ")" : text;
}

}  // namespace

struct ExpressionToken {
  enum class Kind { kOperator, kWord, kNumber, kText, kEnd };
  Kind kind = Kind::kEnd;
  std::string text;
  size_t offset = 0;
};

class ExpressionLexer {
 public:
  explicit ExpressionLexer(std::string_view text) : text_(text) {}

  ExpressionToken next() {
    while (i_ < text_.size() && std::isspace(static_cast<unsigned char>(text_[i_]))) ++i_;
    const size_t start = i_;
    if (i_ == text_.size()) return {ExpressionToken::Kind::kEnd, "", start};
    const char c = text_[i_];
    if (is_name_start(c)) return {ExpressionToken::Kind::kWord, word(), start};
    if (is_digit(c) || c == '.') return {ExpressionToken::Kind::kNumber, number(), start};
    if (c == '\'' || c == '"') return {ExpressionToken::Kind::kText, quoted(c), start};
    for (const std::string_view op : {"//", "==", "!=", "<=", ">=", "+", "-", "*", "/", "%", "<", ">", "(", ")"}) {
      if (!text_.substr(i_).starts_with(op)) continue;
      i_ += op.size();
      return {ExpressionToken::Kind::kOperator, std::string(op), start};
    }
    for (const auto& [other, ours] : {std::pair("=", "=="), {"&", "and"}, {"|", "or"}, {"!", "not"}}) {
      if (text_.substr(i_).starts_with(other)) {
        throw ExpressionError(std::string("'") + other + "' is not an operator; write " + ours);
      }
    }
    throw ExpressionError("'" + std::string(1, c) + "' cannot stand in an expression");
  }

 private:
  std::string word() {
    const size_t start = i_;
    while (i_ < text_.size() && (is_name_part(text_[i_]) || text_[i_] == '.')) ++i_;
    while (i_ < text_.size() && (text_[i_] == '[' || text_[i_] == '.')) {
      if (text_[i_] == '[') i_ = std::min(text_.find(']', i_), text_.size() - 1) + 1;
      while (i_ < text_.size() && (is_name_part(text_[i_]) || text_[i_] == '.')) ++i_;
    }
    return std::string(text_.substr(start, i_ - start));
  }
  std::string number() {
    const size_t start = i_;
    const auto digits = [&] {
      while (i_ < text_.size() && (is_name_part(text_[i_]) || text_[i_] == '.')) ++i_;
    };
    digits();
    const bool signed_exponent =
        i_ < text_.size() && (text_[i_] == '-' || text_[i_] == '+') && (text_[i_ - 1] == 'e' || text_[i_ - 1] == 'E');
    if (signed_exponent) ++i_, digits();
    return std::string(text_.substr(start, i_ - start));
  }
  std::string quoted(char quote) {
    const size_t end = text_.find(quote, i_ + 1);
    if (end == std::string_view::npos) throw ExpressionError("a quotation mark is not closed");
    std::string content(text_.substr(i_ + 1, end - i_ - 1));
    i_ = end + 1;
    return content;
  }

  std::string_view text_;
  size_t i_ = 0;
};

/// Recursive descent: a function for each level of binding.
class ExpressionParser {
 public:
  explicit ExpressionParser(Expression& expression) : expression_(expression), lexer_(expression.text_) { advance(); }

  NodePointer parse() {
    NodePointer root = either();
    if (is(")")) throw ExpressionError("unmatched ')'");
    if (token_.kind != ExpressionToken::Kind::kEnd) fail("operator");
    return root;
  }

 private:
  using Level = NodePointer (ExpressionParser::*)();

  void advance() { token_ = lexer_.next(); }
  [[noreturn]] void fail(const std::string& missing) const {
    const bool at_end = token_.kind == ExpressionToken::Kind::kEnd;
    throw ExpressionError("an " + missing + " is missing " + (at_end ? "at the end" : "before '" + token_.text + "'"));
  }
  bool is(const char* text) const {
    const bool word = token_.kind == ExpressionToken::Kind::kWord || token_.kind == ExpressionToken::Kind::kOperator;
    return word && token_.text == text;
  }
  std::string take() {
    std::string text = std::move(token_.text);
    advance();
    return text;
  }

  NodePointer node(std::string op, NodePointer first, NodePointer second = nullptr) {
    auto made = std::make_unique<Expression::Node>();
    made->op = std::move(op);
    made->operands.push_back(std::move(first));
    if (second) made->operands.push_back(std::move(second));
    return made;
  }

  /// Operands of `level` with operators between them that bind alike, from the left.
  NodePointer chain(Level level, std::initializer_list<const char*> operators) {
    NodePointer left = (this->*level)();
    while (std::any_of(operators.begin(), operators.end(), [&](const char* op) { return is(op); })) {
      std::string op = take();
      left = node(std::move(op), std::move(left), (this->*level)());
    }
    return left;
  }

  NodePointer either() { return chain(&ExpressionParser::both, {"or"}); }
  NodePointer both() { return chain(&ExpressionParser::negation, {"and"}); }
  NodePointer negation() {
    if (!is("not")) return comparison();
    const Depth depth(depth_);
    std::string op = take();
    return node(std::move(op), negation());
  }
  NodePointer comparison() {
    const auto is_comparison = [&] {
      const auto operators = {"==", "!=", "<", "<=", ">", ">="};
      return std::any_of(operators.begin(), operators.end(), [&](const char* op) { return is(op); });
    };
    NodePointer left = sum();
    if (!is_comparison()) return left;
    std::string op = take();
    left = node(std::move(op), std::move(left), sum());
    if (is_comparison()) throw ExpressionError("comparisons cannot be chained; write 'a < b and b < c'");
    return left;
  }
  NodePointer sum() { return chain(&ExpressionParser::product, {"+", "-"}); }
  NodePointer product() { return chain(&ExpressionParser::sign, {"*", "/", "//", "%"}); }
  NodePointer sign() {
    if (!is("-")) return operand();
    const Depth depth(depth_);
    advance();
    return node("neg", sign());
  }

  NodePointer operand() {
    if (is("(")) {
      const Depth depth(depth_);
      advance();
      NodePointer inside = either();
      if (token_.kind == ExpressionToken::Kind::kEnd) throw ExpressionError("a '(' is not closed");
      if (!is(")")) fail("operator");
      advance();
      return inside;
    }
    auto made = std::make_unique<Expression::Node>();
    if (token_.kind == ExpressionToken::Kind::kNumber) {
      made->literal = number();
    } else if (token_.kind == ExpressionToken::Kind::kText) {
      made->literal = token_.text;
    } else if (is("true") || is("false")) {
      made->literal = token_.text == "true";
    } else if (is("and") || is("or") || is("not") || token_.kind != ExpressionToken::Kind::kWord) {
      fail("operand");
    } else if (!is("null")) {
      made->name = token_.text;
      expression_.names_.push_back({token_.text, token_.offset});
    }
    advance();
    return made;
  }

  ExpressionValue number() const {
    const bool whole = std::all_of(token_.text.begin(), token_.text.end(), is_digit);
    const auto integer = whole ? parse_integer(token_.text) : std::nullopt;
    if (integer) return *integer;
    const auto number = parse_number(token_.text);
    if (!number) throw ExpressionError("'" + token_.text + "' is not a number");
    return *number;
  }

  /// Counts how deep the parser is, so that no text exhausts the stack.
  struct Depth {
    explicit Depth(int& counter) : depth(counter) {
      if (++depth > kMaxLevels) throw ExpressionError("more than " + std::to_string(kMaxLevels) + " levels deep");
    }
    ~Depth() { --depth; }
    Depth(const Depth&) = delete;
    Depth& operator=(const Depth&) = delete;
    int& depth;
  };

  Expression& expression_;
  ExpressionLexer lexer_;
  ExpressionToken token_;
  int depth_ = 0;
};

namespace {

bool truth(const ExpressionValue& value, const std::string& op) {
  if (const auto* flag = std::get_if<bool>(&value)) return *flag;
  throw ExpressionError("'" + op + "' needs true or false, not " + describe(value));
}

double number(const ExpressionValue& value, const std::string& op) {
  if (const auto* whole = std::get_if<int64_t>(&value)) return static_cast<double>(*whole);
  if (const auto* number = std::get_if<double>(&value)) return *number;
  throw ExpressionError("'" + op + "' needs numbers, not " + describe(value));
}

/// Floor division, as Python's, where it has a value.
int64_t floor_divide(int64_t a, int64_t b) {
  const int64_t quotient = a / b;
  return quotient - ((a % b != 0 && (a < 0) != (b < 0)) ? 1 : 0);
}

ExpressionValue of_integers(const std::string& op, int64_t a, int64_t b) {
  int64_t result = 0;
  bool overflow = false;
  if (op == "+") overflow = __builtin_add_overflow(a, b, &result);
  if (op == "-") overflow = __builtin_sub_overflow(a, b, &result);
  if (op == "*") overflow = __builtin_mul_overflow(a, b, &result);
  if (op == "//" || op == "%") {
    if (b == 0) throw ExpressionError("division by zero");
    overflow = a == std::numeric_limits<int64_t>::min() && b == -1;
    if (!overflow) result = op == "//" ? floor_divide(a, b) : a - floor_divide(a, b) * b;
  }
  if (overflow) throw ExpressionError("the result of '" + op + "' is too large");
  return result;
}

ExpressionValue arithmetic(const std::string& op, const ExpressionValue& left, const ExpressionValue& right) {
  const auto* a = std::get_if<int64_t>(&left);
  const auto* b = std::get_if<int64_t>(&right);
  if (a && b && op != "/") return of_integers(op, *a, *b);
  const double x = number(left, op);
  const double y = number(right, op);
  if (y == 0 && (op == "/" || op == "//" || op == "%")) throw ExpressionError("division by zero");
  double result = 0;
  if (op == "+") result = x + y;
  if (op == "-") result = x - y;
  if (op == "*") result = x * y;
  if (op == "/") result = x / y;
  if (op == "//") result = std::floor(x / y);
  if (op == "%") result = x - std::floor(x / y) * y;
  if (!std::isfinite(result)) throw ExpressionError("the result of '" + op + "' is too large");
  return result;
}

bool is_number(const ExpressionValue& value) {
  return std::holds_alternative<int64_t>(value) || std::holds_alternative<double>(value);
}

bool equal(const ExpressionValue& a, const ExpressionValue& b) {
  if (is_number(a) && is_number(b)) return number(a, "==") == number(b, "==");
  return a == b;
}

bool compare(const std::string& op, const ExpressionValue& left, const ExpressionValue& right) {
  if (op == "==") return equal(left, right);
  if (op == "!=") return !equal(left, right);
  const double a = number(left, op);
  const double b = number(right, op);
  if (op == "<") return a < b;
  if (op == "<=") return a <= b;
  if (op == ">") return a > b;
  return a >= b;
}

using Lookup = std::function<ExpressionValue(const std::string&)>;

ExpressionValue value_of_node(const Expression::Node& node, const Lookup& value_of) {
  const std::string& op = node.op;
  if (op.empty()) return node.name.empty() ? node.literal : value_of(node.name);
  ExpressionValue first = value_of_node(*node.operands[0], value_of);
  if (op == "not") return !truth(first, op);
  if (op == "neg") return arithmetic("-", int64_t{0}, first);
  if (op == "and" || op == "or") {
    if (truth(first, op) == (op == "or")) return first;
    return truth(value_of_node(*node.operands[1], value_of), op);
  }
  const ExpressionValue second = value_of_node(*node.operands[1], value_of);
  const bool is_comparison = op.find_first_of("=<>") != std::string::npos;
  return is_comparison ? ExpressionValue(compare(op, first, second)) : arithmetic(op, first, second);
}

}  // namespace

Expression::Expression(std::string_view text) : text_(text) { root_ = ExpressionParser(*this).parse(); }
Expression::Expression(Expression&&) noexcept = default;
Expression::~Expression() = default;

std::vector<std::string> Expression::names() const {
  std::vector<std::string> names;
  for (const Name& name : names_) names.push_back(name.text);
  return names;
}

ExpressionValue Expression::evaluate(const Lookup& value_of) const { return value_of_node(*root_, value_of); }

std::string Expression::with_values(const std::function<const ExpressionValue*(const std::string&)>& value_of) const {
  std::string result;
  size_t done = 0;
  for (const Name& name : names_) {
    const ExpressionValue* value = value_of(name.text);
    if (!value) continue;
    result += text_.substr(done, name.offset - done) + literal_text(*value);
    done = name.offset + name.text.size();
  }
  return result + text_.substr(done);
}

bool is_expression(std::string_view text) {
  return text.starts_with('-') || text.starts_with("not ") ||
         text.find_first_of("+*/%()<>=!&|'\" \t\n") != std::string_view::npos;
}

ExpressionValue operand_of(const Value& value, const std::string& name) {
  if (value.is_null()) return nullptr;
  if (!value.is_scalar())
    throw ExpressionError(name + " is " + value.describe() + ", not a number, a text, true or false");
  switch (value.scalar_type()) {
    case ScalarType::kNull:
      return nullptr;
    case ScalarType::kBool:
      return value.text()[0] == 't' || value.text()[0] == 'T';
    case ScalarType::kInteger:
      if (const auto integer = parse_integer(value.text())) return *integer;
      [[fallthrough]];
    case ScalarType::kFloat:
      if (const auto number = parse_number(value.text())) return *number;
      throw ExpressionError(name + " is " + value.describe() + ", which is too large");
    case ScalarType::kString:
      break;
  }
  return value.text();
}

Value value_of(const ExpressionValue& value, Place place) {
  if (const auto* text = std::get_if<std::string>(&value))
    return Value::scalar(*text, /*quoted=*/true, std::move(place));
  if (std::holds_alternative<std::nullptr_t>(value)) return Value::null(std::move(place));
  return Value::scalar(describe(value), /*quoted=*/false, std::move(place));
}

}  // namespace trainrun
