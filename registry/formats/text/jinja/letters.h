#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "registry/formats/text/jinja/lexer.h"
#include "registry/formats/text/jinja/value.h"

// What Python's methods of texts do with letters. Letters change case one by one: "ß" stays as it is in upper case.

namespace trainrun::jinja {

std::string upper(const std::string& text);
std::string lower(const std::string& text);
/// Each word, or the text, with a capital letter at its begin and small ones behind it.
std::string title(const std::string& text);
std::string capitalized(const std::string& text);
bool is_digits(const std::string& text);
bool is_letters(const std::string& text);
bool is_letters_or_digits(const std::string& text);
bool is_space(const std::string& text);
bool is_upper(const std::string& text);
bool is_lower(const std::string& text);

/// How many bytes without whitespace the text has at its begin, and at its end.
size_t word_at_begin(std::string_view text);
size_t word_at_end(std::string_view text);
/// Without these characters, or whitespace, at its begin and end.
std::string stripped(const std::string& text, const std::optional<std::string>& chars, bool at_begin, bool at_end,
                     Budget& budget);
/// With `by` in the place of `what`, at the first `most` places, or all if that is negative.
std::string replaced(const std::string& text, const std::string& what, const std::string& by, int64_t most,
                     Budget& budget);

}  // namespace trainrun::jinja
