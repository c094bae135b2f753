#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace trainrun::jinja {

struct Token {
  enum class Kind {
    kData,  // what is written as it stands
    kVariableBegin,
    kVariableEnd,
    kBlockBegin,
    kBlockEnd,
    kName,
    kText,  // of a string literal, without quotes and escapes
    kInteger,
    kFloat,
    kOperator,
    kEnd,
  };
  Kind kind = Kind::kEnd;
  std::string text;
  int line = 0;

  bool is(Kind of_kind, std::string_view what) const { return kind == of_kind && text == what; }
  bool is_name(std::string_view what) const { return is(Kind::kName, what); }
  bool is_operator(std::string_view what) const { return is(Kind::kOperator, what); }
};

/// The tokens of a template, the last of kind kEnd, as Jinja has them with trim_blocks and lstrip_blocks. `source` is
/// valid UTF-8. Throws TemplateError, which names the line.
std::vector<Token> tokens_of(std::string_view source);

/// Throws TemplateError: "line 3: message".
[[noreturn]] void fail_at(int line, const std::string& message);

/// What Python's str.isspace and str.strip take for whitespace.
bool is_python_space(char32_t character);
/// How many bytes of whitespace the text has at its begin, and at its end.
size_t leading_space(std::string_view text);
size_t trailing_space(std::string_view text);

}  // namespace trainrun::jinja
