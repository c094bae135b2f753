#pragma once

#include <string>
#include <string_view>

#include "registry/language/value.h"

// The source form: how the bodies of blocks stay until they are used, with their parameters' `${name}` and with `$${`.

namespace trainrun {

/// `value` in source form.
Value escaped(Value value);

/// The first `${…}` that a value in source form still holds, or "".
std::string first_reference(const Value& value);

/// Text being put together. In a block's body the result is in source form: literal text escaped, parameters as
/// written.
class TextBuilder {
 public:
  explicit TextBuilder(bool source_form) : source_form_(source_form) {}

  void add_literal(std::string_view text) { literal_ += text; }
  void add_parameter(const std::string& source);
  void add_source_form(std::string_view text);
  /// A '$' came to stand right before a parameter's `${`, and there is no way to write that.
  bool clash() const { return clash_; }
  std::string take();

 private:
  void flush();

  bool source_form_;
  bool clash_ = false;
  std::string text_;
  std::string literal_;
};

}  // namespace trainrun
