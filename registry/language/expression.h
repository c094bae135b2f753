#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "registry/language/error.h"

namespace trainrun {

/// What an expression, or a name in it, stands for: null, true or false, a number, a text.
using ExpressionValue = std::variant<std::nullptr_t, bool, int64_t, double, std::string>;

/// An expression that cannot be read, or has no value: "division by zero in 'n // groups'".
class ExpressionError : public Error {
 public:
  using Error::Error;
};

/// The content of a `${…}` that is more than a name: `${channels * 2}`, `${not last}`, `${(width + 1) // 2}`.
///
/// Operators are Python's and mean what they mean there. From the loosest to the tightest:
///   or    and    not    == != < <= > >=    + -    * / // %    - (of one operand)    ( )
/// Operands are names (`width`, `model.layers[0].out_channels`), numbers, true, false, null and 'texts'. Whole numbers
/// stay whole except with `/`; `and`, `or` and `not` need true or false, and evaluate the second operand only if it
/// matters; comparisons cannot be chained.
class Expression {
 public:
  /// Throws ExpressionError, which says what is wrong where.
  explicit Expression(std::string_view text);
  Expression(Expression&&) noexcept;
  ~Expression();

  /// The names in it, in order, each as often as it stands there.
  std::vector<std::string> names() const;
  /// Throws ExpressionError where an operator has no meaning for its operands, and what `value_of` throws.
  ExpressionValue evaluate(const std::function<ExpressionValue(const std::string& name)>& value_of) const;
  /// The text with literals for the names that have a value; `value_of` gives null for those that stay.
  std::string with_values(const std::function<const ExpressionValue*(const std::string& name)>& value_of) const;

  struct Node;

 private:
  struct Name {
    std::string text;
    size_t offset;
  };
  std::string text_;
  std::vector<Name> names_;
  std::unique_ptr<const Node> root_;
  friend class ExpressionParser;
};

/// Whether what stands in a `${…}` is an expression rather than a name: it has an operator other than a '-' between
/// letters, which names may have, or a space.
bool is_expression(std::string_view text);

/// A scalar of a recipe as an operand. Throws ExpressionError for lists and mappings; `name` is for the message.
ExpressionValue operand_of(const Value& value, const std::string& name);
/// The inverse, at `place`.
Value value_of(const ExpressionValue& value, Place place);

}  // namespace trainrun
