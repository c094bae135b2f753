#include "runner/base/byte_size.h"

#include <array>
#include <cctype>
#include <cmath>
#include <cstdlib>
#include <utility>

namespace trainrun {

std::optional<int64_t> parse_bytes(const std::string& text) {
  constexpr double kLargest = 9e18;
  constexpr std::array<std::pair<const char*, double>, 9> kUnits = {{{"b", 1},
                                                                     {"kb", 1e3},
                                                                     {"mb", 1e6},
                                                                     {"gb", 1e9},
                                                                     {"tb", 1e12},
                                                                     {"kib", 1024.0},
                                                                     {"mib", 1048576.0},
                                                                     {"gib", 1073741824.0},
                                                                     {"tib", 1099511627776.0}}};
  const size_t end = text.find_first_not_of("0123456789.");
  if (end == std::string::npos || end == 0) return std::nullopt;
  const std::string digits = text.substr(0, end);
  char* stopped = nullptr;
  const double number = std::strtod(digits.c_str(), &stopped);
  if (*stopped != '\0') return std::nullopt;
  std::string unit;
  for (const char letter : text.substr(end)) {
    if (letter != ' ') unit += static_cast<char>(std::tolower(static_cast<unsigned char>(letter)));
  }
  for (const auto& [name, factor] : kUnits) {
    if (unit != name) continue;
    const double bytes = number * factor;
    if (bytes < 1 || bytes > kLargest) return std::nullopt;
    return std::llround(bytes);
  }
  return std::nullopt;
}

}  // namespace trainrun
