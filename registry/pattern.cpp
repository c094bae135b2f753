#include "registry/pattern.h"

#include <regex>

namespace trainrun {

std::optional<std::string> read_pattern(const Value& match, Reader& reader) {
  const auto scope = reader.enter("match");
  auto pattern = Codec<std::string>::read(match, reader);
  if (!pattern) return std::nullopt;
  try {
    static_cast<void>(std::regex(*pattern));
  } catch (const std::regex_error& error) {
    reader.error(match.place(), "'" + *pattern + "' is no regular expression: " + error.what());
    return std::nullopt;
  }
  return pattern;
}

}  // namespace trainrun
