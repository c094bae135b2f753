#include "registry/pattern.h"

#include <regex>

namespace trainrun {

std::string pattern_fault(const std::string& pattern) {
  try {
    static_cast<void>(std::regex(pattern));
  } catch (const std::regex_error& error) {
    return "'" + pattern + "' is not a regular expression: " + error.what();
  }
  return "";
}

std::optional<std::string> read_pattern(const Value& match, Reader& reader) {
  const auto scope = reader.enter("match");
  auto pattern = Codec<std::string>::read(match, reader);
  if (!pattern) return std::nullopt;
  const std::string fault = pattern_fault(*pattern);
  if (fault.empty()) return pattern;
  reader.error(match.place(), fault);
  return std::nullopt;
}

}  // namespace trainrun
