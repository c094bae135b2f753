#pragma once

#include <optional>
#include <string>
#include <vector>

#include "registry/language/codec.h"

namespace trainrun {

/// Why `pattern` is not a regular expression; "" if it is one.
std::string pattern_fault(const std::string& pattern);

/// The regular expression under `match`, to be searched in names; empty if it is invalid, which was reported.
std::optional<std::string> read_pattern(const Value& match, Reader& reader);

/// A regular expression that is searched in names, where only a pattern is written: `freeze: ['^stem', 'bias$']`.
struct NamePattern {
  std::string text;
  Place place;
  std::string path;
};

template <>
struct Codec<NamePattern> {
  static std::optional<NamePattern> read(const Value& value, Reader& reader);
  static nlohmann::json schema(SchemaContext&) { return {{"type", "string"}, {"format", "regex"}}; }
  static nlohmann::json write(const NamePattern& value) { return value.text; }
  static std::string type_name() { return "regular expression"; }
};

/// For each of `names`, whether a pattern is found in it. Throws RecipeError at the place of a pattern that is found in
/// none; `what` they are the names of.
std::vector<bool> names_with(const std::vector<NamePattern>& patterns, const std::vector<std::string>& names,
                             const std::string& what = "parameter");

}  // namespace trainrun
