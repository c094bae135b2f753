#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace trainrun {

/// Bytes as hexadecimal digits in lower case, two for each: "00ff".
std::string hex_of(std::string_view bytes);
/// The bytes that `hex_of` writes so; nothing for any other text.
std::optional<std::string> bytes_of_hex(std::string_view text);

/// A number as `width` hexadecimal digits or more: "002f".
enum class HexCase { kLower, kUpper };
std::string hex_number(uint64_t number, int width, HexCase letters = HexCase::kLower);
/// The number that these hexadecimal digits of either case mean, at most 16 of them; nothing for any other text.
std::optional<uint64_t> number_of_hex(std::string_view digits);

}  // namespace trainrun
