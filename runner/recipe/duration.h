#pragma once

#include <string>

#include "registry/language/codec.h"

namespace trainrun {

/// A time as people write it: `30s`, `15min`, `2h`, `1.5h`.
struct Duration {
  double seconds = 0;
  std::string text;  // as it was written

  /// Nothing where `text` is no such time above 0.
  static std::optional<Duration> parse(const std::string& text);
};

template <>
struct Codec<Duration> {
  static std::optional<Duration> read(const Value& value, Reader& reader);
  static nlohmann::json schema(SchemaContext& context);
  static nlohmann::json write(const Duration& duration) { return duration.text; }
  static std::string type_name() { return "time (30s, 15min, 2h)"; }
};

}  // namespace trainrun
