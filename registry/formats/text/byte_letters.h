#pragma once

#include <string>
#include <string_view>

namespace trainrun {

/// GPT-2's way to write any bytes as letters: each byte is one printable character, so that a vocabulary can be a text
/// file. Source: Radford et al. 2019, encoder.py, bytes_to_unicode.
std::string byte_letters(std::string_view bytes);
/// The same, appended.
void append_byte_letters(std::string& letters, std::string_view bytes);
/// Appends the bytes that these letters stand for; false, and nothing appended, if one of them stands for none.
bool append_bytes_of(std::string& bytes, std::string_view letters);

}  // namespace trainrun
