#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace trainrun {

/// The text between two `mark`s, which is doubled where the text has it: 'it''s' and "a ""b""", as YAML, SQL and CSV
/// write them.
std::string in_marks(std::string_view text, char mark);

/// At most `most` bytes of the text, whole characters of UTF-8, and "…" where that is not all.
std::string shortened(std::string_view text, size_t most);

/// What the end of a list says that is not told whole: "a, b, …" or "a, b, … (12 in all)".
enum class LeftOut { kMark, kCount };
/// The first `most` words, joined by ", ".
std::string join_first(std::vector<std::string> words, size_t most, LeftOut left_out = LeftOut::kMark);

/// "1 row is", "3 rows are".
std::string counted(int64_t count, const std::string& one, const std::string& many);

/// With so many figures, but no zeros at the end: "0.0412", "1.5e-07".
std::string in_figures(double number, int figures);

/// A to Z in lower case; all else as it is.
std::string lower_ascii(std::string text);

}  // namespace trainrun
