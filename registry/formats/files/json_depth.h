#pragma once

#include <string>
#include <string_view>

namespace trainrun {

/// Throws DataError ("PLACE: is nested too deeply: …") if lists and objects of this JSON lie more than `deepest` in each
/// other. To be called before a parser sees what others wrote: what it makes of nothing but opening brackets takes a
/// hundred times their size, and who calls itself for each value would overflow the stack. A text that is not JSON passes
/// or is refused; the parser says what is wrong with it.
void check_json_depth(std::string_view text, int deepest, const std::string& place);

/// Throws DataError where the text holds more than so many values, counted by what stands before each: brackets, braces
/// and commas.
void check_json_size(std::string_view text, size_t most_values, const std::string& place);

}  // namespace trainrun
