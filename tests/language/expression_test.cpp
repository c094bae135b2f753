#include "registry/language/expression.h"

#include <doctest/doctest.h>

#include <map>

namespace trainrun {
namespace {

const std::map<std::string, ExpressionValue>& names() {
  static const std::map<std::string, ExpressionValue> names = {{"n", int64_t{7}},
                                                               {"half", 0.5},
                                                               {"last", true},
                                                               {"first", false},
                                                               {"mode", std::string("mean")},
                                                               {"model.layers[0].out_channels", int64_t{32}},
                                                               {"none", nullptr},
                                                               {"large", INT64_MAX}};
  return names;
}

ExpressionValue lookup(const std::string& name) { return names().at(name); }

/// The value as a recipe would write it; what is wrong, where there is none.
std::string result(const std::string& text) {
  try {
    const Value value = value_of(Expression(text).evaluate(lookup), {});
    return value.is_null() ? "null" : value.quoted() ? "'" + value.text() + "'" : value.text();
  } catch (const ExpressionError& error) {
    return std::string("error: ") + error.what();
  }
}

}  // namespace

TEST_CASE("operators mean what they mean in Python") {
  // The right column is Python's answer to the left one.
  const std::map<std::string, std::string> cases = {
      {"2 + 3 * 4", "14"},
      {"(2 + 3) * 4", "20"},
      {"2 - 3 - 4", "-5"},
      {"7 / 2", "3.5"},
      {"8 / 2", "4"},
      {"7 // 2", "3"},
      {"-7 // 2", "-4"},
      {"7 // -2", "-4"},
      {"-7 % 3", "2"},
      {"7 % -3", "-2"},
      {"7.5 // 2", "3"},
      {"-7.5 % 2", "0.5"},
      {"1e3 * 2", "2000"},
      {"n * 4 + 1", "29"},
      {"n * half", "3.5"},
      {"- n + 1", "-6"},
      {"2 * -n", "-14"},
      {"model.layers[0].out_channels // 4", "8"},
      {"not last", "false"},
      {"not first and last", "true"},
      {"not (first or last)", "false"},
      {"first or n > 3", "true"},
      {"first and 1 / 0 > 1", "false"},
      {"last or 1 / 0 > 1", "true"},
      {"not n == 7", "false"},
      {"n == 7.0", "true"},
      {"n != 7", "false"},
      {"n <= 7 and n >= 7", "true"},
      {"n < 7 or n > 7", "false"},
      {"mode == 'mean'", "true"},
      {"mode != \"sum\"", "true"},
      {"none == null", "true"},
      {"n == null", "false"},
      {"mode == 1", "false"},
      {"'a b'", "'a b'"},
      {"true", "true"},
  };
  for (const auto& item : cases) {
    CAPTURE(item.first);
    CHECK(result(item.first) == item.second);
  }
}

TEST_CASE("an expression without a meaning says why") {
  const std::map<std::string, std::string> cases = {
      {"n //", "an operand is missing at the end"},
      {"* 2", "an operand is missing before '*'"},
      {"n 2", "an operator is missing before '2'"},
      {"(n + 1", "a '(' is not closed"},
      {"n + 1)", "unmatched ')'"},
      {"()", "an operand is missing before ')'"},
      {"n = 7", "'=' is not an operator; write =="},
      {"!last", "'!' is not an operator; write not"},
      {"last && first", "'&' is not an operator; write and"},
      {"n ** 2", "an operand is missing before '*'"},
      {"1 < n < 9", "comparisons cannot be chained; write 'a < b and b < c'"},
      {"n ? 1", "'?' cannot stand in an expression"},
      {"'open", "a quotation mark is not closed"},
      {"2x + 1", "'2x' is not a number"},
      {"n // 0", "division by zero"},
      {"n % 0", "division by zero"},
      {"n / 0.0", "division by zero"},
      {"large + 1", "the result of '+' is too large"},
      {"large * 2", "the result of '*' is too large"},
      {"1e308 * 10", "the result of '*' is too large"},
      {"(-large - 1) // -1", "the result of '//' is too large"},
      {"not n", "'not' needs true or false, not 7"},
      {"n and last", "'and' needs true or false, not 7"},
      {"last + 1", "'+' needs numbers, not true"},
      {"mode + 1", "'+' needs numbers, not the text 'mean'"},
      {"mode < 'sum'", "'<' needs numbers, not the text 'mean'"},
      {"none * 2", "'*' needs numbers, not null"},
      {std::string(100, '(') + "1", "more than 64 levels deep"},
      {std::string(100, '-') + "1", "more than 64 levels deep"},
  };
  for (const auto& item : cases) {
    CAPTURE(item.first);
    CHECK(result(item.first) == "error: " + item.second);
  }
}

TEST_CASE("names are listed in order, and some may be replaced by their values") {
  const Expression expression("(n - half) * mode.x[3] + n");
  CHECK(expression.names() == std::vector<std::string>{"n", "half", "mode.x[3]", "n"});
  const ExpressionValue minus = int64_t{-2};
  const auto known = [&](const std::string& name) { return name == "n" ? &minus : nullptr; };
  CHECK(expression.with_values(known) == "((-2) - half) * mode.x[3] + (-2)");
  const ExpressionValue text = std::string("a }");
  CHECK_THROWS_AS(expression.with_values([&](const std::string&) { return &text; }), ExpressionError);
}

TEST_CASE("a name may have a '-'; what has spaces or another operator is an expression") {
  for (const char* name : {"channels", "a-b", "model.layers[0].type", "1.true.a-b", "notes"})
    CHECK_FALSE(is_expression(name));
  for (const char* text : {"a - b", "not a", "-a", "a*2", "a//b", "(a)", "a<b", "a==b", "'a'"})
    CHECK(is_expression(text));
}

}  // namespace trainrun
