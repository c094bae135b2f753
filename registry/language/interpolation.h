#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "registry/language/error.h"
#include "registry/language/value.h"

namespace trainrun {

/// One step of a path such as `model.layers[0].out_channels`: a key or an index.
struct PathStep {
  std::string key;
  size_t index = 0;
  bool is_index = false;
  size_t offset = 0;  // where in the path's text the step begins
};
using Path = std::vector<PathStep>;

/// Reads `model.layers[0].out_channels`. If the text is not a path, returns nothing and sets `error` ("an index counts
/// from 0").
std::optional<Path> parse_path(std::string_view text, std::string& error);
/// The inverse of parse_path, for the first `length` steps.
std::string path_text(const Path& path, size_t length = static_cast<size_t>(-1));

/// A piece of a scalar's text.
struct TextPiece {
  enum class Kind {
    kLiteral,      // `text` itself; `$${` has become `${`
    kReference,    // `${text}`: another value of the recipe, or a block's parameter
    kExpression,   // `${text}`: computed from several values, see expression.h
    kEnvironment,  // `${env:text}` or `${env:text:-fallback}`
    kMalformed     // `text` says what is wrong
  };
  Kind kind = Kind::kLiteral;
  std::string text;
  std::optional<std::string> fallback;
  std::string source;  // as written
};

/// Splits a scalar's text. `$${` stands for a literal `${`; a `$` elsewhere is a `$`. Braces within `${…}` nest.
std::vector<TextPiece> parse_pieces(std::string_view text);

/// Text that parse_pieces reads as one literal: `${` becomes `$${`.
std::string escape_references(std::string_view text);

/// `body` (of a block, as resolve_recipe leaves it) with its parameters put in: a scalar that is just `${name}` becomes
/// that parameter's value, at the place where that was written; within a longer text the parameter's text is inserted
/// and the result is a string. An expression of parameters alone becomes its value. References to anything else stay.
/// `$${` becomes `${`, so a body is substituted once. A list, mapping or null within a longer text is a problem, and so
/// is an expression without a value; without `problems` they stay too.
Value substitute(const Value& body, const std::map<std::string, Value>& parameters,
                 std::vector<Problem>* problems = nullptr);

/// `value` with another place; what is inside it keeps its own.
Value with_place(Value value, Place place);

}  // namespace trainrun
