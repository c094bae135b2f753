#include "registry/language/pattern.h"

#include "registry/language/error.h"
#include "registry/language/name_regex.h"

namespace trainrun {

std::string pattern_fault(const std::string& pattern) {
  try {
    regex_of(pattern);
  } catch (const DataError& error) {
    return error.what();
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

std::optional<NamePattern> Codec<NamePattern>::read(const Value& value, Reader& reader) {
  auto text = Codec<std::string>::read(value, reader);
  if (!text) return std::nullopt;
  const std::string fault = pattern_fault(*text);
  if (fault.empty()) return NamePattern{std::move(*text), value.place(), reader.path()};
  reader.error(value.place(), fault);
  return std::nullopt;
}

std::vector<bool> names_with(const std::vector<NamePattern>& patterns, const std::vector<std::string>& names,
                             const std::string& what) {
  std::vector<bool> found(names.size());
  for (const NamePattern& pattern : patterns) {
    const Regex compiled = regex_of(pattern.text);
    bool is_used = false;
    for (size_t i = 0; i < names.size(); ++i) {
      if (!compiled.is_in(names[i])) continue;
      found[i] = true;
      is_used = true;
    }
    if (is_used) continue;
    throw RecipeError(
        {{pattern.place, pattern.path, "'" + pattern.text + "' matches no " + what + suggestion(pattern.text, names)}});
  }
  return found;
}

}  // namespace trainrun
