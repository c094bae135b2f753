#include "runner/recipe/duration.h"

#include <array>
#include <utility>

namespace trainrun {

std::optional<Duration> Duration::parse(const std::string& text) {
  constexpr std::array<std::pair<const char*, double>, 3> kUnits = {{{"min", 60}, {"s", 1}, {"h", 3600}}};
  const size_t end = text.find_first_not_of("0123456789.");
  if (end == std::string::npos || end == 0) return std::nullopt;
  const auto number = parse_number(text.substr(0, end));
  for (const auto& [unit, seconds] : kUnits) {
    if (number && *number > 0 && text.substr(end) == unit) return Duration{*number * seconds, text};
  }
  return std::nullopt;
}

std::optional<Duration> Codec<Duration>::read(const Value& value, Reader& reader) {
  if (value.is_scalar() && value.scalar_type() == ScalarType::kString) {
    if (auto duration = Duration::parse(value.text())) return duration;
  }
  reader.error(value.place(), "expected a time above 0 such as 30s, 15min or 2h, found " + value.describe());
  return std::nullopt;
}

nlohmann::json Codec<Duration>::schema(SchemaContext&) {
  return {{"type", "string"}, {"pattern", R"(^(?=.*[1-9])([0-9]+(\.[0-9]*)?|\.[0-9]+)(s|min|h)$)"}};
}

}  // namespace trainrun
