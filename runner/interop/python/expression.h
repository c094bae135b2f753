#pragma once

#include <nlohmann/json_fwd.hpp>

#include <string>
#include <utility>
#include <vector>

#include "registry/language/value.h"

// Python text: literals, calls, and how they are broken into lines.

namespace trainrun::python {

/// A value, or a call with its arguments.
struct Expression {
  struct Argument;
  std::string text;  // "0.1", "x"; of a call what is called: "nn.Conv2d"
  bool is_call = false;
  std::vector<Argument> arguments;

  static Expression code(std::string text);
  static Expression call(std::string callee);
  static Expression call(std::string callee, std::vector<Argument> arguments);
};

struct Expression::Argument {
  std::string name;  // of the parameter; "" where it has none
  Expression value;
  bool is_positional = false;  // written without its name
  bool is_default = false;     // the value that it has where it is not written
};

inline Expression Expression::code(std::string text) { return {std::move(text), false, {}}; }
inline Expression Expression::call(std::string callee) { return {std::move(callee), true, {}}; }
inline Expression Expression::call(std::string callee, std::vector<Argument> arguments) {
  return {std::move(callee), true, std::move(arguments)};
}

/// `value` as Python writes it. Lists are tuples, mappings dicts.
std::string literal(const nlohmann::json& value);
/// What a recipe says, numbers as they are written there.
std::string literal(const Value& value);
std::string quoted(const std::string& text);
/// A raw string for a regular expression.
std::string pattern(const std::string& text);

/// On one line.
std::string one_line(const Expression& expression);
/// With `before` in front of it and `after` behind, at an indentation of so many spaces; calls that are too long for a
/// line have one argument on each.
std::string written(const std::string& before, const Expression& expression, size_t indentation,
                    const std::string& after = "");

/// Whether Python takes it for a name.
bool is_identifier(const std::string& text);
/// "basic_block" -> "BasicBlock".
std::string camel(const std::string& text);
/// `text` with `to` wherever `from` is found.
std::string replaced(std::string text, const std::string& from, const std::string& to);
/// `lines`, each of which is not empty, further to the right.
std::string indented(const std::string& lines, size_t spaces);

}  // namespace trainrun::python
