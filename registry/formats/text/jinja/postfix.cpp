#include <algorithm>

#include "registry/formats/text/jinja/expression.h"

// What stands behind a value: attributes, keys, calls, filters and tests.

namespace trainrun::jinja {

using Kind = Token::Kind;

Expression ExpressionParser::postfix(Expression subject) {
  while (true) {
    if (tokens_.skip(".")) {
      const Token& token = tokens_.next();
      if (token.kind == Kind::kInteger) {
        subject =
            made({&subject}, [subject, key = number_of(token)](Context& c) { return item(c.budget, subject(c), key); });
      } else if (token.kind == Kind::kName) {
        subject = made({&subject},
                       [subject, name = token.text](Context& c) { return attribute(c.budget, subject(c), name); });
      } else {
        fail_at(token.line, "expected a name behind the dot");
      }
    } else if (tokens_.peek().is_operator("[")) {
      subject = subscript(subject);
    } else if (tokens_.peek().is_operator("(")) {
      subject = call(subject);
    } else {
      return subject;
    }
  }
}

Expression ExpressionParser::subscript(const Expression& subject) {
  tokens_.expect("[");
  const Expression none = made(0, [](Context&) { return Value::none(); });
  Expression parts[3] = {none, none, none};
  size_t count = 0;  // of colons
  bool given = false;
  while (!tokens_.skip("]")) {
    if (tokens_.skip(":")) {
      if (++count > 2) tokens_.fail("a slice has three parts at most");
    } else {
      if (given && count == 0) tokens_.fail_here();
      parts[count] = expression();
      given = true;
      if (!tokens_.peek().is_operator(":") && !tokens_.peek().is_operator("]")) tokens_.fail_here();
    }
  }
  if (count == 0) {
    if (!given) tokens_.fail("expected a key between the brackets");
    return made({&subject, &parts[0]}, [subject, key = parts[0]](Context& c) {
      const Value of = subject(c);
      return item(c.budget, of, key(c));
    });
  }
  return made({&subject, &parts[0], &parts[1], &parts[2]},
              [subject, begin = parts[0], end = parts[1], step = parts[2]](Context& c) {
                const Value of = subject(c);
                return slice(c.budget, of, begin(c), end(c), step(c));
              });
}

Expression ExpressionParser::callee() {
  if (tokens_.peek().kind != Kind::kName) tokens_.fail_here();
  Expression found = primary();
  while (tokens_.skip(".")) {
    found = made({&found},
                 [found, name = tokens_.expect_name()](Context& c) { return attribute(c.budget, found(c), name); });
  }
  return found;
}

CallArguments ExpressionParser::arguments() {
  constexpr size_t kMostArguments = 255;
  tokens_.expect("(");
  CallArguments made;
  bool first = true;
  while (!tokens_.skip(")")) {
    if (!first) tokens_.expect(",");
    if (tokens_.skip(")")) break;
    first = false;
    if (tokens_.peek().is_operator("*") || tokens_.peek().is_operator("**")) {
      tokens_.fail("arguments out of a list or dict (*, **) are not supported");
    }
    const Token token = tokens_.peek();
    Expression value = expression();
    if (token.kind == Kind::kName && tokens_.skip("=")) {
      value = expression();
      made.named.emplace_back(token.text, value);
    } else if (!made.named.empty()) {
      tokens_.fail("an argument without a name cannot follow one with a name");
    } else {
      made.positional.push_back(value);
    }
    made.height = std::max(made.height, value.height());
    if (made.positional.size() + made.named.size() > kMostArguments) tokens_.fail("there are more than 255 arguments");
  }
  return made;
}

Expression ExpressionParser::call(const Expression& callee) {
  const CallArguments given = arguments();
  return made(std::max(callee.height(), given.height), [callee, given](Context& c) {
    const Value function = callee(c);
    const Arguments values = given.evaluate(c);
    return jinja::call(c.budget, function, values);
  });
}

Expression ExpressionParser::filters_and_tests(Expression subject) {
  while (true) {
    if (tokens_.peek().is_operator("|")) {
      subject = filters(std::move(subject));
    } else if (tokens_.peek().is_name("is")) {
      subject = test(subject);
    } else if (tokens_.peek().is_operator("(")) {
      subject = call(subject);
    } else {
      return subject;
    }
  }
}

Expression ExpressionParser::filters(Expression subject, bool begun) {
  for (; begun || tokens_.skip("|"); begun = false) {
    const std::string name = tokens_.expect_name();
    CallArguments given;
    if (tokens_.peek().is_operator("(")) given = arguments();
    subject = made(std::max(subject.height(), given.height), [subject, name, given](Context& c) {
      const Value of = subject(c);
      return filter(c.budget, name, of, given.evaluate(c));
    });
  }
  return subject;
}

Expression ExpressionParser::test(const Expression& subject) {
  tokens_.next();
  const bool negates = tokens_.skip_name("not");
  const std::string name = tokens_.expect_name();
  CallArguments given;
  const Token& token = tokens_.peek();
  const bool is_value = token.kind == Kind::kName || token.kind == Kind::kText || token.kind == Kind::kInteger ||
                        token.kind == Kind::kFloat || token.is_operator("[") || token.is_operator("{");
  if (token.is_operator("(")) {
    given = arguments();
  } else if (is_value && !token.is_name("else") && !token.is_name("or") && !token.is_name("and")) {
    if (token.is_name("is")) tokens_.fail("tests cannot be chained with is");
    given.positional.push_back(postfix(primary()));
    given.height = given.positional[0].height();
  }
  return made(std::max(subject.height(), given.height), [subject, name, given, negates](Context& c) {
    const Value of = subject(c);
    return Value::flag(jinja::test(c.budget, name, of, given.evaluate(c)) != negates);
  });
}

Value call(Budget& budget, const Value& callee, const Arguments& arguments) {
  require_defined(callee);
  const Function* function = callee.as_function();
  if (!function) throw TemplateError(std::string("a value of type ") + callee.type_name() + " cannot be called");
  budget.spend();
  spend_on(budget, arguments);
  return function->call(budget, arguments);
}

}  // namespace trainrun::jinja
