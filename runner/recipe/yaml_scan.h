#pragma once

#include <optional>

#include "runner/recipe/yaml_text.h"

namespace trainrun {

// What a look at the characters of a YAML text finds where yaml-cpp's own message would mislead, or would not come.

/// A blank that is none to YAML (a non-breaking space, a zero-width one, …) outside quotes, comments and block texts:
/// the problem names it. Nothing where there is none.
std::optional<Problem> find_false_blank(const YamlText& source);

/// For a text that has a syntax error: the `{` or `[` that is never closed, where a later line at the indentation of
/// its own, or the end of the text, shows that it is not. The problem is at the bracket.
std::optional<Problem> find_unclosed(const YamlText& source);

}  // namespace trainrun
