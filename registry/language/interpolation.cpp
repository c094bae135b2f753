#include "registry/language/interpolation.h"

#include <algorithm>
#include <cctype>

#include "registry/language/expression.h"

namespace trainrun {
namespace {

constexpr std::string_view kOpen = "${";
constexpr std::string_view kEscapedOpen = "$${";
constexpr std::string_view kEnvironment = "env:";
constexpr std::string_view kFallback = ":-";

std::string_view stripped(std::string_view text) {
  const size_t first = text.find_first_not_of(" \t\n");
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t\n") - first + 1);
}

bool is_variable_name(std::string_view name) {
  const auto is_part = [](unsigned char c) { return std::isalnum(c) || c == '_'; };
  return !name.empty() && !std::isdigit(static_cast<unsigned char>(name[0])) &&
         std::all_of(name.begin(), name.end(), is_part);
}

/// The offset of the brace that closes the one before `start`, or npos.
size_t closing_brace(std::string_view text, size_t start) {
  int depth = 1;
  for (size_t i = start; i < text.size(); ++i) {
    if (text[i] == '{') ++depth;
    if (text[i] == '}' && --depth == 0) return i;
  }
  return std::string_view::npos;
}

TextPiece parse_environment(std::string_view body) {
  const size_t split = body.find(kFallback);
  const std::string name(stripped(body.substr(0, split)));
  if (!is_variable_name(name)) {
    return {TextPiece::Kind::kMalformed, "'" + name + "' is not the name of an environment variable", {}, {}};
  }
  TextPiece piece{TextPiece::Kind::kEnvironment, name, {}, {}};
  if (split != std::string_view::npos) piece.fallback = std::string(body.substr(split + kFallback.size()));
  return piece;
}

TextPiece parse_expression(std::string_view body) {
  try {
    std::string error;
    for (const std::string& name : Expression(body).names()) {
      if (!parse_path(name, error)) return {TextPiece::Kind::kMalformed, error, {}, {}};
    }
    return {TextPiece::Kind::kExpression, std::string(body), {}, {}};
  } catch (const ExpressionError& error) {
    return {TextPiece::Kind::kMalformed, error.what(), {}, {}};
  }
}

/// What stands between `${` and `}`.
TextPiece parse_reference(std::string_view body) {
  const std::string_view name = stripped(body);
  if (name.starts_with(kEnvironment)) return parse_environment(body.substr(body.find(':') + 1));
  std::string error;
  const bool has_fallback = name.find(kFallback) != std::string_view::npos;
  if (has_fallback && is_variable_name(name.substr(0, name.find(kFallback)))) {
    return {TextPiece::Kind::kMalformed, "write ${env:" + std::string(name) + "}", {}, {}};
  }
  if (is_expression(name)) return parse_expression(name);
  if (parse_path(name, error)) return {TextPiece::Kind::kReference, std::string(name), {}, {}};
  return {TextPiece::Kind::kMalformed, error, {}, {}};
}

/// Reads `[12]` at text[i]; moves `i` behind it.
std::optional<PathStep> parse_index(std::string_view text, size_t& i, std::string& error) {
  const size_t end = text.find(']', i);
  if (end == std::string_view::npos) {
    error = "'[' without ']'";
    return std::nullopt;
  }
  const std::string_view digits = text.substr(i + 1, end - i - 1);
  const auto number = digits.size() > 9 ? std::nullopt : parse_integer(digits);
  if (!number || *number < 0 || digits.find_first_not_of("0123456789") != std::string_view::npos) {
    error = "'" + std::string(digits) + "' is not an index; an index is a number that counts from 0";
    return std::nullopt;
  }
  PathStep step;
  step.index = static_cast<size_t>(*number);
  step.is_index = true;
  step.offset = i;
  i = end + 1;
  return step;
}

/// The value of an expression whose names are all parameters; nothing where one is not, or where it has none, which
/// goes to `problems`.
std::optional<Value> substitute_expression(const TextPiece& piece, const std::map<std::string, Value>& parameters,
                                           const Place& place, std::vector<Problem>* problems) {
  const Expression expression(piece.text);
  const std::vector<std::string> names = expression.names();
  const auto is_parameter = [&](const std::string& name) { return parameters.contains(name); };
  if (!std::all_of(names.begin(), names.end(), is_parameter)) return std::nullopt;
  try {
    return value_of(expression.evaluate([&](const std::string& name) { return operand_of(parameters.at(name), name); }),
                    place);
  } catch (const ExpressionError& error) {
    if (problems) problems->push_back({place, "", piece.source + ": " + error.what()});
    return std::nullopt;
  }
}

Value substitute_text(const Value& scalar, const std::map<std::string, Value>& parameters,
                      std::vector<Problem>* problems) {
  if (scalar.text().find(kOpen) == std::string::npos) return scalar;
  const std::vector<TextPiece> pieces = parse_pieces(scalar.text());
  const auto parameter_of = [&](const TextPiece& piece) -> std::optional<Value> {
    if (piece.kind == TextPiece::Kind::kExpression) {
      return substitute_expression(piece, parameters, scalar.place(), problems);
    }
    const bool reference = piece.kind == TextPiece::Kind::kReference;
    const auto it = reference ? parameters.find(piece.text) : parameters.end();
    return it == parameters.end() ? std::nullopt : std::optional<Value>(it->second);
  };
  if (pieces.size() == 1 && pieces[0].kind != TextPiece::Kind::kLiteral) {
    return parameter_of(pieces[0]).value_or(scalar);
  }
  std::string text;
  for (const TextPiece& piece : pieces) {
    const std::optional<Value> parameter = parameter_of(piece);
    if (piece.kind == TextPiece::Kind::kLiteral) {
      text += piece.text;
    } else if (parameter && parameter->is_scalar()) {
      text += parameter->text();
    } else {
      text += piece.source;
      if (parameter && problems) {
        problems->push_back(
            {scalar.place(), "", piece.source + " is " + parameter->describe() + " and cannot be part of a string"});
      }
    }
  }
  return Value::scalar(std::move(text), /*quoted=*/true, scalar.place());
}

void substitute_in_place(Value& value, const std::map<std::string, Value>& parameters, std::vector<Problem>* problems) {
  if (value.is_scalar()) {
    value = substitute_text(value, parameters, problems);
  } else if (value.is_list()) {
    for (Value& item : value.items()) substitute_in_place(item, parameters, problems);
  } else if (value.is_map()) {
    for (Value::Entry& entry : value.entries()) substitute_in_place(entry.value, parameters, problems);
  }
}

}  // namespace

std::optional<Path> parse_path(std::string_view text, std::string& error) {
  Path path;
  size_t i = 0;
  bool key_wanted = true;  // at the start and after a dot
  while (i < text.size() || key_wanted) {
    if (!key_wanted && text[i] == '.') {
      key_wanted = true;
      ++i;
    } else if (!key_wanted && text[i] == '[') {
      auto step = parse_index(text, i, error);
      if (!step) return std::nullopt;
      path.push_back(std::move(*step));
    } else {
      const size_t end = std::min(text.find_first_of(".[]", i), text.size());
      const std::string_view key = text.substr(i, end - i);
      if (!key_wanted || key.empty() || key.find_first_of("{}:$ \t\n") != std::string_view::npos) {
        error = text.empty() ? "a name is missing"
                             : "'" + std::string(text) + "' is not a path such as model.layers[0].type";
        return std::nullopt;
      }
      path.push_back({std::string(key), 0, false, i});
      i = end;
      key_wanted = false;
    }
  }
  return path;
}

std::string path_text(const Path& path, size_t length) {
  std::string text;
  for (size_t i = 0; i < std::min(length, path.size()); ++i) {
    if (path[i].is_index) {
      text += "[" + std::to_string(path[i].index) + "]";
    } else {
      text += (text.empty() ? "" : ".") + path[i].key;
    }
  }
  return text;
}

std::vector<TextPiece> parse_pieces(std::string_view text) {
  std::vector<TextPiece> pieces;
  std::string literal;
  const auto end_literal = [&] {
    if (!literal.empty()) pieces.push_back({TextPiece::Kind::kLiteral, literal, {}, literal});
    literal.clear();
  };
  size_t i = 0;
  while (i < text.size()) {
    if (text.substr(i).starts_with(kEscapedOpen)) {
      literal += kOpen;
      i += kEscapedOpen.size();
    } else if (text.substr(i).starts_with(kOpen)) {
      end_literal();
      const size_t start = i + kOpen.size();
      const size_t end = closing_brace(text, start);
      if (end == std::string_view::npos) {
        pieces.push_back({TextPiece::Kind::kMalformed,
                          "'${' without '}'; write $${ for a literal ${",
                          {},
                          std::string(text.substr(i))});
        return pieces;
      }
      pieces.push_back(parse_reference(text.substr(start, end - start)));
      pieces.back().source = std::string(text.substr(i, end + 1 - i));
      i = end + 1;
    } else {
      literal += text[i++];
    }
  }
  end_literal();
  return pieces;
}

std::string escape_references(std::string_view text) {
  std::string escaped;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text.substr(i).starts_with(kOpen)) escaped += '$';
    escaped += text[i];
  }
  return escaped;
}

Value substitute(const Value& body, const std::map<std::string, Value>& parameters, std::vector<Problem>* problems) {
  Value result = body;
  substitute_in_place(result, parameters, problems);
  return result;
}

Value with_place(Value value, Place place) {
  switch (value.kind()) {
    case Value::Kind::kNull:
      break;
    case Value::Kind::kScalar:
      return Value::scalar(value.text(), value.quoted(), std::move(place));
    case Value::Kind::kList:
      return Value::list(std::move(value.items()), std::move(place));
    case Value::Kind::kMap:
      return Value::map(std::move(value.entries()), std::move(place));
  }
  return Value::null(std::move(place));
}

}  // namespace trainrun
